"""Attack 23: no sandbox works, or it is removed while Holdfast runs."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.bwrap import bwrap as bwrap_module
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.container.container import ContainerSandbox
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.sandbox import Availability, CachedCheck, SandboxBackend, make_sandbox
from tests.sandbox.support import PATH, confined, run

pytestmark = pytest.mark.anyio


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, as for installed programs; pytest's own are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def marker(root: Path) -> ProcessSpec:
    """A server that creates the file `ran`."""
    return ProcessSpec(argv=("touch", str(root / "ran")), env=PATH, cwd=str(root))


def programs(folder: Path, **stubs: str) -> str:
    """A PATH with the real `prlimit` and these stub programs."""
    folder.mkdir()
    (folder / "prlimit").symlink_to(shutil.which("prlimit") or "/usr/bin/prlimit")
    for name, text in stubs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return str(folder)


async def refusal(sandbox: SandboxBackend | None, root: Path) -> str:
    async with Keeper(sandbox) as keeper:
        with pytest.raises(HoldfastError) as caught:
            await keeper.spawn(confined(marker(root), root))
    assert (caught.value.code, (root / "ran").exists()) == (codes.NO_SANDBOX, False)
    return caught.value.message


@pytest.mark.promise("BOX-04")
async def test_confined_server_without_a_sandbox_is_refused(root: Path) -> None:
    assert (
        await refusal(None, root)
        == "Could not start 'touch': it must be confined, but there is no working sandbox. Run `holdfast doctor`."
    )


@pytest.mark.promise("BOX-04")
async def test_refusal_says_what_to_install(root: Path, open_folder: Path) -> None:
    sandbox = BwrapSandbox(search_path=programs(open_folder / "bin"))

    assert await refusal(sandbox, root) == (
        "Could not start 'touch': it must be confined, but the sandbox does not work. bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'."
    )


@pytest.mark.promise("BOX-04")
@pytest.mark.parametrize(
    ("stub", "reason"),
    [
        ("#!/bin/sh\necho 'bwrap: No permissions to create new user namespace' >&2; exit 1\n", "No permissions to create new user namespace. Allow unprivileged user namespaces"),
        ("#!/bin/sh\necho 'bwrap: Unknown option --bind-fd' >&2; exit 1\n", "Unknown option --bind-fd. Install bubblewrap 0.10 or newer"),
        ("#!/bin/sh\nexit 0\n", "The sandbox could not be set up: it printed no error."),
        ("#!/no/such/thing\n", "The sandbox failed. Could not start"),
    ],
    ids=["fails", "too old", "does nothing", "cannot start"],
)  # fmt: skip
async def test_sandbox_that_fails_is_not_used(root: Path, open_folder: Path, stub: str, reason: str) -> None:
    assert reason in await refusal(BwrapSandbox(search_path=programs(open_folder / "bin", bwrap=stub)), root)


@pytest.mark.promise("BOX-04")
@pytest.mark.parametrize("how", ["removed", "broken"])
async def test_sandbox_that_breaks_while_running_is_noticed(
    root: Path, open_folder: Path, bwrap: BwrapSandbox, how: str
) -> None:
    folder = programs(open_folder / "bin")
    link = Path(folder) / "bwrap"
    link.symlink_to(shutil.which("bwrap") or "")
    sandbox = BwrapSandbox(search_path=folder)
    async with Keeper(sandbox) as keeper:
        before = await run(keeper, confined(ProcessSpec(argv=("true",), env=PATH, cwd=str(root)), root))

        link.unlink()
        if how == "broken":
            programs(open_folder / "broken", bwrap="#!/bin/sh\nexit 1\n")
            link.symlink_to(open_folder / "broken" / "bwrap")
        with pytest.raises(HoldfastError) as caught:
            await keeper.spawn(confined(marker(root), root))

    assert (before.code, caught.value.code, (root / "ran").exists()) == (0, codes.NO_SANDBOX, False)


CHANGE_BWRAP = """
import os
done = []
for change in (lambda path: os.chmod(path, 0o777), lambda path: os.utime(path, (0, 0)), lambda path: os.open(path, os.O_WRONLY)):
    for process in os.listdir('/proc'):
        try: change('/proc/%s/exe' % process)
        except OSError as error: continue
        done.append(process)
print(done)
"""


@pytest.mark.promise("BOX-02", "BOX-04")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_confined_server_cannot_change_the_file_of_bubblewrap_through_proc(
    root: Path, open_folder: Path, bwrap: BwrapSandbox, monkeypatch: pytest.MonkeyPatch, is_protected: bool
) -> None:
    if not is_protected:
        monkeypatch.setattr(bwrap_module, "_BWRAP_IN_PROC", "/proc/fs")
    folder = programs(open_folder / "bin")
    # A copy that belongs to the user of the server, as /usr/bin/bwrap does if the server runs in a folder of root.
    copy = Path(shutil.copy2(shutil.which("bwrap") or "", folder))
    before = copy.stat().st_mode, copy.stat().st_mtime
    async with Keeper(BwrapSandbox(search_path=folder)) as keeper:
        spec = ProcessSpec(argv=("/usr/bin/python3", "-I", "-c", CHANGE_BWRAP), env=PATH, cwd=str(root))
        done = await run(keeper, confined(spec, root))

    after = copy.stat().st_mode, copy.stat().st_mtime
    assert (done.out, after == before) == ("[]\n" if is_protected else "['1', '1']\n", is_protected)


async def test_unconfined_server_runs_without_a_sandbox(root: Path) -> None:
    """Control: without a confinement the server runs."""
    async with Keeper(None) as keeper:
        await run(keeper, marker(root))

    assert (root / "ran").exists()


@pytest.mark.promise("BOX-04")
@pytest.mark.usefixtures("bwrap")
async def test_working_sandbox_is_detected() -> None:
    assert (await make_sandbox().check()).works


@pytest.mark.promise("BOX-04")
@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("", "bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'."),
        (
            "podman",
            "podman is missing. Install it, or remove sandbox.engine from the settings to use bubblewrap.",
        ),
    ],
)
async def test_missing_sandbox_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, engine: str, reason: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert await make_sandbox(engine, "image").check() == Availability(works=False, reason=reason)


@pytest.mark.promise("BOX-04")
@pytest.mark.parametrize("engine", ["", "podman"])
async def test_program_that_a_server_left_in_the_path_is_not_executed_as_the_sandbox(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """The user has activated an environment of the project, so a folder of a root is the first one in the PATH."""
    open_folder.chmod(0o777)
    planted = f"#!/bin/sh\n/usr/bin/touch {open_folder}/ran\nexit 1\n"
    programs(open_folder / "bin", bwrap=planted, podman=planted, true=planted)
    (open_folder / "link").symlink_to("bin")
    monkeypatch.setenv("PATH", f"{open_folder}/bin:{open_folder}/link:bin:{os.environ['PATH']}")

    found = await make_sandbox(engine, "image").check()
    ran = (open_folder / "ran").exists()
    if engine:
        await ContainerSandbox(engine=engine, image="image", search_path=os.environ["PATH"]).check()
    else:
        await BwrapSandbox(search_path=os.environ["PATH"]).check()

    assert (found.works or bool(engine), ran) == (True, False)
    assert (open_folder / "ran").exists(), "control: with the whole PATH, it is executed"


@pytest.mark.promise("BOX-04")
async def test_brief_failure_of_the_sandbox_does_not_last() -> None:
    """A shortage of descriptors or processes at one moment must not take the sandbox away until the next restart."""
    results = [
        Availability(works=False, reason="too many files are open"),
        Availability(works=True),
        Availability(works=False),
    ]

    async def check() -> Availability:
        return results.pop(0)

    def no_wait(sandbox: CachedCheck) -> None:
        sandbox._check_again = 0.0  # pyright: ignore[reportPrivateUsage]

    checked = CachedCheck(check)
    at_once = [(await checked.result()).works, (await checked.result()).works]
    no_wait(checked)
    later = [(await checked.result()).works, (await checked.result()).works]
    no_wait(checked)

    assert (at_once, later) == ([False, False], [True, True])
    assert (await checked.result()).works, "a success is kept"
