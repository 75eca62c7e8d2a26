"""Attack 39: links in a folder that take very long to follow, or that would need very many descriptors."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

import pytest

import holdfast
from holdfast.host.session_folders import resolve_path
from holdfast.model.confined_folders import lock_root
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.model.real_path import real_path
from holdfast.model.trust import Trust
from holdfast.resolve.read_program import read_program
from holdfast.sandbox import guard_watch, read_only_names
from holdfast.sandbox.guard_watch import GuardedRoot
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.opened_path import PathOpener
from holdfast.sandbox.start_confined import wait_for_cleanups
from holdfast.workspaces.registry import Registry
from tests.builtin.support import Files
from tests.sandbox.support import PATH, confined, python, read_line, run, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]


def make_slow_links(folder: Path, number: int = 400) -> str:
    """Make links of 800 steps each, of which each leads to the next one. Return the name of the first."""
    (folder / "x").mkdir(parents=True)
    (folder / "end").touch()
    for index in range(number):
        target = f"c{index + 1}" if index + 1 < number else "end"
        (folder / f"c{index}").symlink_to("x/../" * 800 + target)
    return "c0"


def make_chain(folder: Path) -> None:
    """1,500 short links, of which each leads to the next one."""
    folder.mkdir()
    for index in range(1500):
        (folder / f"c{index}").symlink_to(f"c{index + 1}")


def make_many_links(folder: Path, number: int = 100) -> None:
    """Links to many files in the root."""
    folder.mkdir()
    for index in range(number):
        (folder.parent / f"f{index}").touch()
        (folder / f"l{index}").symlink_to(f"../f{index}")


def is_endless(path: Path) -> bool:
    """Whether the standard library takes long to resolve this path: control."""
    command = [sys.executable, "-I", "-S", "-c", "import os, sys; os.path.realpath(sys.argv[1])", path]
    try:
        return subprocess.run(command, timeout=0.5, check=False).returncode != 0  # too deep a recursion
    except subprocess.TimeoutExpired:
        return True


@pytest.mark.slow
@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize("make", [make_slow_links, make_chain])
async def test_server_starts_in_a_folder_with_costly_links_and_cannot_change_it(
    keeper: Keeper, root: Path, make: Callable[[Path], object]
) -> None:
    make(root / ".vscode")
    write = confined(ProcessSpec(argv=("touch", "notes.txt"), env=PATH, cwd=str(root)), root)

    done = await run(keeper, write)
    tools = await Files(root, trust=Trust.SANDBOXED).code("write", path="notes.txt", text="x")
    for link in (root / ".vscode").glob("c*"):
        link.unlink()
    control = await run(keeper, write)

    assert (done.code, tools, control.code) == (1, "DENIED", 0)
    assert "Read-only file system" in done.err


@pytest.mark.promise("BOX-01")
async def test_every_place_that_follows_a_strangers_path_stops_soon(root: Path) -> None:
    slow = root / "d" / make_slow_links(root / "d")
    (root / ".git").write_text(f"gitdir: {slow}\n")
    registry = Registry(root.parent / "data" / "workspaces")
    other = root.parent / "other"
    other.mkdir()
    registry.add(other, trust=Trust.DIRECT)

    assert registry.find(str(root)) is None
    assert registry.find_overlaps([str(root)]) == ()
    assert read_program(("d/c0",), str(root)).problem.endswith("too many folders and links on the way")
    with pytest.raises(HoldfastError, match="cannot be resolved: too many folders and links"):
        resolve_path("cwd", str(slow))
    with pytest.raises(OSError, match="too many"):
        real_path(str(slow))
    assert is_endless(slow), "control"


def test_real_path_is_the_one_that_the_system_finds(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    (tmp_path / "absolute").symlink_to(tmp_path / "link" / ".." / "b")
    paths = ["link", "link/..", "absolute/./c//d", "missing/../a", "a/b/../../link", "../" * 40]

    assert [real_path(f"{tmp_path}/{path}") for path in paths] == [
        os.path.realpath(f"{tmp_path}/{path}") for path in paths
    ]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.promise("BOX-01")
async def test_links_to_many_files_do_not_use_up_the_hosts_descriptors(
    keeper: Keeper, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_many_links(root / ".vscode")
    wait = confined(python("print('ready', flush=True); input()"), root)
    used: list[int] = []
    before = open_descriptors()
    for limit in (read_only_names._MAX_NAMES, 1000):
        monkeypatch.setattr(read_only_names, "_MAX_NAMES", limit)
        async with started(keeper, wait) as child:
            await read_line(child)
            used.append(open_descriptors() - before)
        await wait_for_cleanups()
    after = open_descriptors() - before

    few, control = used
    assert (few < 30, control > 100, after < 5) == (True, True, True), used


@contextmanager
def spare_descriptors(number: int) -> Iterator[None]:
    soft, hard = getrlimit(RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    # No gaps below the limit.
    held = [os.open("/", os.O_PATH) for _ in range(highest - open_descriptors() + 2)]
    setrlimit(RLIMIT_NOFILE, (max(highest, *held) + 1 + number, hard))
    try:
        yield
    finally:
        setrlimit(RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)


@pytest.mark.promise("BOX-01")
def test_no_descriptor_is_lost_when_there_are_too_few(root: Path) -> None:
    for index in range(10):
        (root / f"f{index}").touch()
    with ExitStack() as resources:
        opener = PathOpener(resources)
        opened = opener.open(str(root), links="refuse")
        children = [child for index in range(10) if (child := opener.child(opened, f"f{index}"))]
        locks = lock_root(str(root), [step.status for step in opened.self_and_parents()])
        resources.enter_context(locks.running_lock)
        resources.enter_context(locks.setup_locks)
        before = open_descriptors()
        with spare_descriptors(5), pytest.raises(OSError, match="Too many open files"):
            GuardedRoot(opened, locks, {}, children)
        after = open_descriptors()
        guarded = GuardedRoot(opened, locks, {}, children)
        control = open_descriptors()
        guarded.close()

    assert (after - before, control - before) == (0, 11)


FLOOD = """
import ast
import os
open('a', 'w').close()
for _ in range(2000): os.rename('a', 'b'); os.rename('b', 'a')
print('done', flush=True); input()
"""


@pytest.mark.promise("BOX-01")
async def test_renaming_other_files_causes_no_checks_of_the_guards(
    keeper: Keeper, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []
    find_problems, names = guard_watch._find_problems, GuardedRoot.names

    def count(watched: tuple[object, ...]) -> object:
        checked.append(len(watched))
        return find_problems(watched)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(guard_watch, "_find_problems", count)
    monkeypatch.setattr(guard_watch, "_CHECK_SECONDS", 1000.0)
    counts: list[int] = []
    for guarded in (names, property(lambda root: ("a", "b"))):
        monkeypatch.setattr(GuardedRoot, "names", guarded)
        checked.clear()
        async with started(keeper, confined(python(FLOOD), root)) as child:
            await read_line(child)
        counts.append(len(checked))

    assert counts[0] <= 2 < counts[1], "the second is the control"


SOURCE = Path(holdfast.__file__).parent
TRUSTED = {
    # What each of them resolves is a path of the user, the system or Holdfast itself.
    *("builtin/stage/browser_sandbox.py", "builtin/stage/find_browser.py", "builtin/stage/options.py"),
    *("host/data_folder.py", "host/packages.py", "model/confined_folders.py"),
    *(
        "resolve/other_clients.py",
        "resolve/inputs.py",
        "resolve/read_program.py",
        "resolve/project_folders.py",
        "resolve/protected_paths.py",
    ),
    "settings/edit.py",
    *("sandbox/bwrap/bwrap.py", "sandbox/bwrap/program_files.py", "sandbox/container/container.py"),
    "sandbox/container/kept_containers.py",
    *("sandbox/escape_probe_runner.py", "sandbox/own_code.py", "toolkit/client.py"),
}


def resolves_without_limit(source: str) -> bool:
    """Whether a module calls `os.path.realpath`, or `Path.resolve`, which has no positional arguments."""
    if "realpath" not in source and ".resolve(" not in source:  # parsing takes longer
        return False
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return any(
        isinstance(call.func, ast.Attribute)
        and (call.func.attr == "realpath" or (call.func.attr == "resolve" and not call.args))
        for call in calls
    )


def test_only_trusted_paths_are_resolved_without_a_limit() -> None:
    """Commands are not checked: a person gives them their paths."""
    modules = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    found = {
        name
        for name, path in modules.items()
        if not name.startswith("cli/") and resolves_without_limit(path.read_text(encoding="utf-8"))
    }

    assert found <= TRUSTED
    assert resolves_without_limit("x = Path(name).resolve(strict=True)")
    assert resolves_without_limit("import os\nx = os.path.realpath(name)")
    assert not resolves_without_limit("x = roots.resolve(path)")
