"""Attack 44: a confined server changes what a person, or a direct session, runs next in the same project."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.process import GUARDED_NAMES, ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.start_confined import wait_released
from tests.sandbox.support import PATH, confined, copy_source, read_line, run, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

ATTACK = """
import json, os, pathlib, sys
def attempt(action, *arguments):
    try: action(*arguments); return True
    except OSError: return False
def put(path):
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    pathlib.Path(path).write_text('evil')
done = {}
for path in json.loads(sys.argv[1]): done['write ' + path] = attempt(put, path)
for path in json.loads(sys.argv[2]): done['move ' + path] = attempt(os.rename, path, path + '.moved')
print(json.dumps(done))
"""
EXISTING = (".git/hooks/pre-commit", ".git/config", ".vscode/tasks.json", ".envrc", ".mcp.json")
MISSING = (".idea/workspace.xml", ".holdfast/agents.toml", ".claude/settings.json", ".cursor/mcp.json")
FOLDERS = (".git", ".vscode", ".envrc", ".claude")


@pytest.fixture
def project(root: Path) -> Path:
    for path in (*EXISTING, "src/server.py", "notes.txt"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("mine")
    return root


async def attack(
    keeper: Keeper,
    root: Path,
    *,
    files: tuple[str, ...],
    moves: tuple[str, ...] = (),
    confine: bool = True,
    **changes: object,
) -> set[str]:
    argv = (sys.executable, "-I", "-c", ATTACK, json.dumps(files), json.dumps(moves))
    spec = ProcessSpec(argv=argv, env=PATH, cwd=str(root))
    done = await run(keeper, confined(spec, root, **changes) if confine else spec)
    return {name for name, succeeded in json.loads(done.out).items() if succeeded}


@pytest.mark.promise("BOX-01")
async def test_files_that_a_persons_programs_obey_cannot_be_changed_or_created(
    keeper: Keeper, project: Path
) -> None:
    achieved = await attack(
        keeper, project, files=(*EXISTING, *MISSING, "notes.txt", "new/file"), moves=FOLDERS
    )

    assert achieved == {"write notes.txt", "write new/file"}
    assert (project / ".git" / "config").read_text() == "mine"


async def test_unconfined_server_changes_them_all(keeper: Keeper, project: Path) -> None:
    achieved = await attack(keeper, project, files=(*EXISTING, *MISSING), confine=False)

    assert achieved == {f"write {path}" for path in (*EXISTING, *MISSING)}


@pytest.mark.promise("BOX-01")
async def test_grant_makes_a_name_writable(keeper: Keeper, project: Path) -> None:
    achieved = await attack(keeper, project, files=(*EXISTING, *MISSING), writable=(".git", ".claude"))

    assert achieved == {
        f"write {path}" for path in (".git/hooks/pre-commit", ".git/config", ".claude/settings.json")
    }


@pytest.mark.promise("BOX-01")
async def test_placeholders_are_there_while_a_server_runs_and_gone_afterwards(
    keeper: Keeper, project: Path
) -> None:
    before = {path.name for path in project.iterdir()}
    spec = ProcessSpec(argv=("sh", "-c", "echo ready; read line"), env=PATH, cwd=str(project))
    async with started(keeper, confined(spec, project)) as first:
        await read_line(first)
        async with started(keeper, confined(spec, project)) as second:
            await read_line(second)
        achieved = await attack(keeper, project, files=MISSING)
        (project / ".idea" / "mine").write_text("put there by a person meanwhile")
        during = {path.name for path in project.iterdir()}
    await wait_released()

    assert (achieved, during) == (set(), before | set(GUARDED_NAMES))
    assert {path.name for path in project.iterdir()} == before | {".idea"}


@pytest.mark.promise("BOX-01")
async def test_server_that_gives_itself_the_permission_leaves_nothing_behind(
    keeper: Keeper, root: Path
) -> None:
    attempt = "chmod 777 .idea; echo evil > .idea/x; rmdir .vscode; mv .claude .moved; rm -rf .envrc; echo evil > .envrc; true"
    spec = ProcessSpec(argv=("sh", "-c", attempt), env=PATH, cwd=str(root))

    confined_run = await run(keeper, confined(spec, root))
    await wait_released()
    left = sorted(path.name for path in root.rglob("*"))
    for name in (".idea", ".vscode", ".claude"):
        (root / name).mkdir()
    await run(keeper, spec)

    assert (confined_run.code, left) == (0, [])
    assert sorted(path.name for path in root.rglob("*")) == [".envrc", ".idea", ".moved", "x"]


@pytest.mark.promise("BOX-01")
async def test_guarded_name_that_is_a_link_is_refused(keeper: Keeper, root: Path) -> None:
    (root / ".vscode").symlink_to("elsewhere")

    with pytest.raises(HoldfastError, match=r'is a symbolic link.*"writable": \["\.vscode"\]'):
        await attack(keeper, root, files=("x",))


@pytest.mark.promise("BOX-01")
async def test_root_with_an_approved_program_cannot_be_changed_at_all(keeper: Keeper, project: Path) -> None:
    files, moves = ("src/server.py", "new", ".git/config", ".envrc"), ("src", "notes.txt")

    achieved = await attack(
        keeper, project, files=files, moves=moves, read_only=(str(project),), writable=(".git",)
    )
    control = await attack(keeper, project, files=files, moves=moves, writable=(".git",))

    assert (achieved, control) == (
        {"write .git/config"},
        {"write src/server.py", "write new", "write .git/config", "move src", "move notes.txt"},
    )


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize(
    ("target", "is_refused"), [("store", True), (".husky/store", False), ("../store", False)]
)
async def test_git_file_that_names_a_repository_in_the_root_is_refused(
    keeper: Keeper, root: Path, target: str, is_refused: bool
) -> None:
    (root / target).mkdir(parents=True)
    (root / ".git").write_text(f"gitdir: {target}\n")

    if is_refused:
        with pytest.raises(HoldfastError, match=r"names '.*/root/store' as the repository.*Move"):
            await attack(keeper, root, files=(f"{target}/config",))
    else:
        await attack(keeper, root, files=(f"{target}/config",))
    assert not (root / target / "config").exists()
    assert await attack(keeper, root, files=("store/config",), writable=(".git",)) == {"write store/config"}


AS_NOBODY = """
import asyncio, json, os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.start_confined import wait_released

CREATE = "chmod 755 .; mkdir -p .vscode; echo evil > .vscode/tasks.json; echo evil > new; chmod {after:o} .; true"
async def run(keeper, root, after=0o755, confine=True):
    spec = ProcessSpec(argv=("/bin/sh", "-c", CREATE.format(after=after)), env={}, cwd=str(root), confinement=Confinement(roots=(str(root),)) if confine else None)
    child = await keeper.spawn(spec)
    await child.wait()
    await child.end(1)
    child.close()
    await wait_released()
    left = os.stat(root).st_mode & 0o777
    os.chmod(root, 0o755)
    return oct(left), sorted(str(path.relative_to(root)) for path in root.rglob("*"))

async def main():
    found = {}
    async with Keeper(BwrapSandbox()) as keeper:
        for mode in (0o755, 0o300, 0o555, 0o600, 0o000):
            for confine in (True, False):
                root = pathlib.Path(sys.argv[2]) / f"{mode:o}{confine}"
                root.mkdir()
                root.chmod(mode if confine or mode & 0o100 else 0o300)
                found[f"{mode:o} {confine}"] = (await run(keeper, root, confine=confine))[1]
        root = pathlib.Path(sys.argv[2]) / "ends"
        root.mkdir()
        found["ends"] = await run(keeper, root, after=0o555)
    print(json.dumps(found))
asyncio.run(main())
"""


@pytest.mark.promise("BOX-01")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that nobody can run")
def test_mode_of_the_root_neither_removes_the_guards_nor_leaves_placeholders(open_folder: Path) -> None:
    place = open_folder.resolve() / "projects"
    place.mkdir()
    os.chown(place, 65534, 65534)

    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", AS_NOBODY, copy_source(open_folder), place], user=65534, group=65534,
        extra_groups=[], cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "755 True": ["new"],
        **{f"{mode} True": [] for mode in ("300", "555", "600", "0")},
        **{
            f"{mode} False": [".vscode", ".vscode/tasks.json", "new"]
            for mode in ("755", "300", "555", "600", "0")
        },
        "ends": ["0o555", ["new"]],
    }


HOLD_UP = """
import fcntl, json, os, sys
def attempt(action, *arguments):
    try: action(*arguments); return True
    except OSError: return False
file = os.open('notes.txt', os.O_RDWR)
device = '/dev/full'
print(json.dumps({
    'lease': attempt(fcntl.fcntl, file, fcntl.F_SETLEASE, fcntl.F_WRLCK),
    'mode of a device': attempt(os.chmod, device, os.stat(device).st_mode & 0o777),
    'times of a device': attempt(os.utime, device, (1, 1)),
    'write to a device': attempt(lambda: open('/dev/null', 'w').write('x')),
}))
"""


@pytest.mark.promise("BOX-01")
async def test_lease_on_a_file_and_changes_of_devices_are_denied(keeper: Keeper, project: Path) -> None:
    argv = (sys.executable, "-I", "-c", HOLD_UP)
    spec = ProcessSpec(argv=argv, env=PATH, cwd=str(project))
    times = Path("/dev/full").stat()

    found = [json.loads((await run(keeper, each)).out) for each in (confined(spec, project), spec)]
    if os.geteuid() == 0:
        os.utime("/dev/full", ns=(times.st_atime_ns, times.st_mtime_ns))

    as_root = os.geteuid() == 0
    assert found == [
        {"lease": False, "mode of a device": False, "times of a device": False, "write to a device": True},
        {"lease": True, "mode of a device": as_root, "times of a device": as_root, "write to a device": True},
    ]
