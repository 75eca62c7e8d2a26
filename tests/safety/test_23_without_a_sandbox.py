"""Attack 23: there is no sandbox, or it is removed while Holdfast runs."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Launch
from holdfast.sandbox.bwrap import Bwrap
from holdfast.sandbox.keeper import Keeper
from holdfast.sandbox.sandbox import Sandbox, available
from tests.sandbox.support import PATH, confined, run

pytestmark = pytest.mark.anyio


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can enter, as those of programs are; pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def marking(root: Path) -> Launch:
    """A server that leaves a mark when it runs at all."""
    return Launch(argv=("touch", str(root / "ran")), env=PATH, cwd=str(root))


def programs(folder: Path, **stubs: str) -> str:
    """A PATH with the real `prlimit`, and these programs."""
    folder.mkdir()
    (folder / "prlimit").symlink_to(shutil.which("prlimit") or "/usr/bin/prlimit")
    for name, text in stubs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return str(folder)


async def refusal(sandbox: Sandbox | None, root: Path) -> str:
    async with Keeper(sandbox) as keeper:
        with pytest.raises(HoldfastError) as caught:
            await keeper.spawn(confined(marking(root), root))
    assert (caught.value.code, (root / "ran").exists()) == (codes.NO_SANDBOX, False)
    return caught.value.message


@pytest.mark.promise("BOX-04")
async def test_without_any_it_is_refused_with_what_to_install(root: Path, open_folder: Path) -> None:
    missing = Bwrap(path=programs(open_folder / "bin"))

    assert (
        await refusal(None, root)
        == "Could not start 'touch': it is to be confined, and no sandbox works here."
    )
    assert await refusal(missing, root) == (
        "Could not start 'touch': it is to be confined. bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'."
    )


@pytest.mark.promise("BOX-04")
@pytest.mark.parametrize(
    ("stub", "reason"),
    [
        ("#!/bin/sh\necho 'bwrap: No permissions to create new user namespace' >&2; exit 1\n", "No permissions to create new user namespace"),
        ("#!/bin/sh\nexit 0\n", "The walls of the sandbox could not be put up"),
        ("#!/no/such/thing\n", "bwrap does not start"),
    ],
    ids=["fails", "does nothing", "cannot start"],
)  # fmt: skip
async def test_one_that_fails_counts_as_none(root: Path, open_folder: Path, stub: str, reason: str) -> None:
    assert reason in await refusal(Bwrap(path=programs(open_folder / "bin", bwrap=stub)), root)


@pytest.mark.promise("BOX-04")
@pytest.mark.parametrize("how", ["removed", "broken"])
async def test_one_that_goes_while_we_run_is_missed(
    root: Path, open_folder: Path, bwrap: Bwrap, how: str
) -> None:
    folder = programs(open_folder / "bin")
    link = Path(folder) / "bwrap"
    link.symlink_to(shutil.which("bwrap") or "")
    sandbox = Bwrap(path=folder)
    async with Keeper(sandbox) as keeper:
        before = await run(keeper, confined(Launch(argv=("true",), env=PATH, cwd=str(root)), root))

        link.unlink()
        if how == "broken":
            programs(open_folder / "broken", bwrap="#!/bin/sh\nexit 1\n")
            link.symlink_to(open_folder / "broken" / "bwrap")
        with pytest.raises(HoldfastError) as caught:
            await keeper.spawn(confined(marking(root), root))

    assert (before.code, caught.value.code, (root / "ran").exists()) == (0, codes.NO_SANDBOX, False)


async def test_what_is_not_to_be_confined_runs_all_the_same(root: Path) -> None:
    """The control: with its walls forgotten, nothing would stop it."""
    async with Keeper(None) as keeper:
        await run(keeper, marking(root))

    assert (root / "ran").exists()


@pytest.mark.promise("BOX-04")
async def test_what_is_available_is_told_with_the_reason(
    bwrap: Bwrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await available()
    monkeypatch.setenv("PATH", "/nowhere")
    nowhere = await available()
    engine = await available(engine="podman", image="x")

    assert (here.sandbox is not None, nowhere.sandbox, engine.sandbox) == (True, None, None)
    assert nowhere.why_not == "bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'."
    assert engine.why_not.startswith("podman is missing. Install it, or take the engine out of the settings")
