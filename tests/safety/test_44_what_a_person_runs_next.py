"""Attack 44: a confined server changes what a person, or a direct session, runs next in the same project."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.confined_folders import can_confined_server_change, locks_folder
from holdfast.model.errors import HoldfastError
from holdfast.model.guarded_names import GUARDED_NAMES
from holdfast.model.process import ProcessSpec
from holdfast.model.trust import Trust
from holdfast.resolve.protected_paths import paths_hidden_from_sandboxes
from holdfast.sandbox import guard_watch
from holdfast.sandbox.guard_watch import GuardWatch
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.placeholders import _rename_or_disable
from holdfast.sandbox.read_only_names import find_read_only_names
from holdfast.sandbox.start_confined import wait_for_cleanups
from holdfast.settings import load
from tests.builtin.support import Files
from tests.sandbox.support import PATH, confined, copy_source, python, read_line, run, started, wait_until

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


async def test_unconfined_server_changes_all_files_that_a_persons_programs_obey(
    keeper: Keeper, project: Path
) -> None:
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
        (project / ".idea" / "mine").write_text("put there by a person")
        during = {path.name for path in project.iterdir()}
    await wait_for_cleanups()

    assert (achieved, during) == (set(), before | set(GUARDED_NAMES))
    assert {path.name for path in project.iterdir()} == before | {".idea"}


@pytest.mark.promise("BOX-01")
async def test_the_last_server_removes_the_placeholders_even_if_the_root_is_read_only_for_it(
    keeper: Keeper, project: Path
) -> None:
    before = {path.name for path in project.iterdir()}
    spec = ProcessSpec(argv=("sh", "-c", "echo ready; read line"), env=PATH, cwd=str(project))
    async with started(keeper, confined(spec, project, read_only=(str(project),))) as reader:
        await read_line(reader)
        only_reader = can_confined_server_change(str(project))
        async with started(keeper, confined(spec, project)) as writer:
            await read_line(writer)
            with_writer = can_confined_server_change(str(project))
        await wait_for_cleanups()
        during = {path.name for path in project.iterdir()}
    await wait_for_cleanups()

    assert (only_reader, with_writer) == (False, True)
    assert during == before | set(GUARDED_NAMES), "the other server still runs"
    assert {path.name for path in project.iterdir()} == before


@pytest.mark.promise("BOX-01")
async def test_server_that_gives_itself_the_permission_leaves_nothing_behind(
    keeper: Keeper, root: Path
) -> None:
    attempt = "chmod 777 .idea; echo evil > .idea/x; rmdir .vscode; mv .claude .moved; rm -rf .envrc; echo evil > .envrc; true"
    spec = ProcessSpec(argv=("sh", "-c", attempt), env=PATH, cwd=str(root))

    confined_run = await run(keeper, confined(spec, root))
    await wait_for_cleanups()
    left = sorted(path.name for path in root.rglob("*"))
    for name in (".idea", ".vscode", ".claude"):
        (root / name).mkdir()
    await run(keeper, spec)

    assert (confined_run.code, left) == (0, [])
    assert sorted(path.name for path in root.rglob("*")) == [".envrc", ".idea", ".moved", "x"]


@pytest.mark.promise("BOX-01")
async def test_guarded_name_that_is_a_link_is_refused(keeper: Keeper, root: Path) -> None:
    (root / ".vscode").symlink_to("elsewhere")

    with pytest.raises(
        HoldfastError, match=r'is a symbolic link.*--writable \.vscode.*"writable": \["\.vscode"\]'
    ):
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


GIT_FILES: dict[str, tuple[str, dict[str, str], tuple[str, ...], tuple[str, ...]]] = {
    # What the `.git` file says, the links and folders to create, and the paths that the server must not change.
    "a repository in the root": ("gitdir: store", {}, ("store/config",), ("store",)),
    "spaces that belong to the name": ("gitdir: store ", {}, ("store /config",), ("store ",)),
    "no space": ("gitdir:store", {}, ("store/config",), ("store",)),
    "a link in the root": (
        "gitdir: build/store/repo",
        {"build/store": "../../outside"},
        (),
        ("build", "build/store"),
    ),
    "a folder that is left again": (
        "gitdir: build/../store",
        {},
        ("build/x", "store/config"),
        ("build", "store"),
    ),
    "a commondir": ("gitdir: ../outside/repo", {}, ("common/config",), ("common",)),
    "a link beside the hooks": ("gitdir: ../outside/repo", {}, ("tools/hook",), ("tools",)),
}


def write_git_file(root: Path, case: str) -> None:
    text, links, files, _ = GIT_FILES[case]
    repository = root.parent / "outside" / "repo"
    (repository / "hooks").mkdir(parents=True)
    (repository / "commondir").write_text("../../root/common\n" if case == "a commondir" else ".\n")
    if case == "a link beside the hooks":
        (repository / "hooks" / "pre-commit").symlink_to(root / "tools" / "hook")
    for path in files:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("mine")
    for path, target in links.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).symlink_to(target)
    (root / ".git").write_text(f"{text}\n")


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize("case", ["a repository in the root", "a link in the root"])
async def test_repository_that_a_git_file_names_cannot_be_changed(
    keeper: Keeper, root: Path, case: str
) -> None:
    write_git_file(root, case)
    _, _, files, moves = GIT_FILES[case]

    achieved = await attack(keeper, root, files=(*files, "notes.txt"), moves=moves)
    control = await attack(keeper, root, files=files, moves=moves, writable=(".git",))

    assert achieved == {"write notes.txt"}
    assert control == {
        *(f"write {path}" for path in files),
        *(f"move {path}" for path in moves if "/" not in path),
    }


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize("case", GIT_FILES)
async def test_servers_and_file_tools_have_the_same_rules_for_git_files(root: Path, case: str) -> None:
    write_git_file(root, case)
    _, _, files, moves = GIT_FILES[case]
    direct, sandboxed = Files(root), Files(root, trust=Trust.SANDBOXED)

    read_only = find_read_only_names([str(root)])[str(root)]
    by_tools = {await sandboxed.code("write", path=path, text="evil") for path in files}
    control = {await direct.code("write", path=path, text="mine") for path in files}

    assert {path for path in moves if "/" not in path} <= read_only
    assert (by_tools <= {"DENIED"}, control <= {"OK"}) == (True, True)


@pytest.mark.promise("BOX-01")
async def test_repository_in_a_folder_that_a_server_may_change_is_refused(keeper: Keeper, root: Path) -> None:
    (root / ".claude" / "store").mkdir(parents=True)
    (root / ".git").write_text("gitdir: .claude/store\n")
    config = ".claude/store/config"

    assert await attack(keeper, root, files=(config,)) == set()
    refused = pytest.raises(HoldfastError, match=r"may change '.*/root/\.claude'.*add \"\.git\"")
    with refused:
        await attack(keeper, root, files=(config,), writable=(".claude",))
    (root / ".vscode").mkdir(exist_ok=True)  # the placeholder may still be there
    for number in range(600):  # too many links to check, so it is not known where they lead
        (root / ".vscode" / str(number)).symlink_to("nowhere")
    with refused:
        await attack(keeper, root, files=(config,), writable=(".claude",))
    shutil.rmtree(root / ".vscode")
    granted = await attack(keeper, root, files=(config,), writable=(".claude", ".git"))

    assert granted == {f"write {config}"}, "control"


@pytest.mark.promise("BOX-01")
async def test_worktree_inside_its_bare_repository_can_be_changed(keeper: Keeper, root: Path) -> None:
    (root.parent / "worktrees" / "root").mkdir(parents=True)
    (root.parent / "worktrees" / "root" / "commondir").write_text("../..\n")
    (root / ".git").write_text(f"gitdir: {root.parent}/worktrees/root\n")

    assert await attack(keeper, root, files=("notes.txt",)) == {"write notes.txt"}


AS_NOBODY = """
import asyncio, json, os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.placeholders import _rename_or_disable
from holdfast.sandbox.read_only_names import find_read_only_names
from holdfast.sandbox.start_confined import wait_for_cleanups

CREATE = "chmod 755 .; mkdir -p .vscode; echo evil > .vscode/tasks.json; echo evil > new; chmod {after:o} .; true"
async def run(keeper, root, after=0o755, confine=True):
    spec = ProcessSpec(argv=("/bin/sh", "-c", CREATE.format(after=after)), env={}, cwd=str(root), confinement=Confinement(roots=(str(root),)) if confine else None)
    child = await keeper.spawn(spec)
    await child.wait()
    await child.end(1)
    child.close()
    await wait_for_cleanups()
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


@pytest.mark.slow
@pytest.mark.promise("BOX-01")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="needs a Python that the user nobody can run"
)
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


# Runs Holdfast from an environment in the project, and lets a confined server of this project attack it.
FROM_THE_PROJECT = """
import asyncio, json, pathlib, sys
root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "lib"))
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap import bwrap
from holdfast.sandbox.keeper.keeper import Keeper

async def attack(keeper):
    argv = ("/usr/bin/python3", "-I", "-c", *sys.argv[2:])
    child = await keeper.spawn(ProcessSpec(argv=argv, env={}, cwd=str(root), confinement=Confinement(roots=(str(root),))))
    out = child.stdout.read()
    await child.end(1)
    return [name for name, succeeded in json.loads(out).items() if succeeded]

async def main():
    async with Keeper(bwrap.BwrapSandbox()) as keeper:
        protected = await attack(keeper)
        bwrap.OWN_CODE = ()
        print(json.dumps([protected, await attack(keeper)]))
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.promise("BOX-06")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python outside of the project")
def test_holdfast_in_the_projects_own_environment_cannot_be_changed(open_folder: Path) -> None:
    root = open_folder.resolve() / "project"
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to("/usr/bin/python3")
    (root / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    Path(copy_source(root)).rename(root / "lib")
    code = ["lib/holdfast/sandbox/keeper/keeper_process.py", "lib/ssl.py", ".venv/pyvenv.cfg"]

    done = subprocess.run(
        [root / ".venv/bin/python", "-I", "-c", FROM_THE_PROJECT, root, ATTACK, json.dumps([*code, "notes.txt"]), '[".venv/bin/python", "lib"]'],
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stderr == ""
    protected, control = json.loads(done.stdout)
    assert protected == ["write notes.txt"]
    assert control == [
        *(f"write {path}" for path in code),
        "write notes.txt",
        "move .venv/bin/python",
        "move lib",
    ]


@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize(
    "place",
    ["a link to the user's list", "a link to the settings", "the operator's list", "a link on the way"],
)
async def test_folder_with_a_file_that_holdfast_obeys_is_refused(
    keeper: Keeper, root: Path, place: str
) -> None:
    config = root.parent / "config"
    config.mkdir()
    (config / "config.toml").touch()
    target, environ = "mcp.json", {"HOLDFAST_DATA_DIR": str(root.parent / "data")}
    match place:
        case "a link to the user's list":
            (config / "mcp.json").symlink_to(root / "mcp.json")
            environ["HOLDFAST_SERVERS_USER_FILE"] = str(config / "mcp.json")
        case "a link to the settings":
            target = "config.toml"
            (config / "config.toml").unlink()
            (config / "config.toml").symlink_to(root / target)
        case "the operator's list":
            environ["HOLDFAST_SERVERS_HOST_FILE"] = str(root / "mcp.json")
        case _:
            (root / "link").symlink_to(config)
            environ["HOLDFAST_SERVERS_HOST_FILE"] = str(root / "link" / "mcp.json")
    (root / target).write_text("")
    hidden = paths_hidden_from_sandboxes(load(config / "config.toml", environ))

    with pytest.raises(HoldfastError, match="overlaps with Holdfast's own files"):
        await attack(keeper, root, files=(target,), protected=hidden)
    assert await attack(keeper, root, files=(target,)) == {f"write {target}"}, "control"


# Tries to write into guarded folders, until it is ended.
INSIST = """
import os, pathlib
print('ready', flush=True)
while True:
    for name in ('.vscode', '.git'):
        try:
            os.makedirs(name, exist_ok=True)
            pathlib.Path(name, 'evil').write_text('evil')
        except OSError: pass
"""


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.promise("BOX-01")
async def test_guards_survive_what_git_removes(keeper: Keeper, root: Path) -> None:
    git(root, "init", "-q")
    (root / "a").write_text("1")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")
    spec = confined(ProcessSpec(argv=(sys.executable, "-I", "-c", INSIST), env=PATH, cwd=str(root)), root)
    async with started(keeper, spec) as child:
        await read_line(child)
        (root / ".idea" / ".gitignore").unlink()
        listed = git(root, "status", "--porcelain", "--ignored")
        (root / "new").write_text("n")
        git(root, "stash", "-qu")
        git(root, "clean", "-fdq")
        left = {name for name in GUARDED_NAMES if (root / name).exists()}
        written = list(root.rglob("evil"))

    assert (left, written) == ({*GUARDED_NAMES} - {".idea"}, [])
    assert {line[3:] for line in listed.splitlines()} <= {f"{name}/" for name in GUARDED_NAMES}


def remove_the_placeholder(root: Path) -> None:
    shutil.rmtree(root / ".vscode")


def move_the_placeholder(root: Path) -> None:
    (root / ".vscode").rename(root / "elsewhere")


def replace_a_file(root: Path) -> None:
    (root / "new").write_text("mine")
    (root / "new").replace(root / ".envrc")


def replace_a_folder(root: Path) -> None:
    (root / ".git").rename(root / "old")
    (root / ".git").mkdir(exist_ok=True)  # the server may have been faster


def remove_the_locks(root: Path) -> None:
    status = root.stat()
    (locks_folder() / f"{status.st_dev:x}-{status.st_ino:x}.runs").unlink()


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize(
    "change",
    [remove_the_placeholder, move_the_placeholder, replace_a_file, replace_a_folder, remove_the_locks],
)
async def test_server_is_ended_when_a_guard_vanishes_and_what_it_wrote_is_set_aside(
    keeper: Keeper, root: Path, change: Callable[[Path], None]
) -> None:
    (root / ".git").mkdir()
    (root / ".envrc").write_text("mine")
    spec = confined(ProcessSpec(argv=(sys.executable, "-I", "-c", INSIST), env=PATH, cwd=str(root)), root)
    async with started(keeper, spec) as child:
        await read_line(child)
        change(root)
        async with asyncio.timeout(20):
            code = await child.wait()
    await wait_for_cleanups()

    assert code != 0
    assert not (root / ".vscode" / "evil").exists()


async def test_control_without_the_watch_a_server_writes_the_name_itself(
    keeper: Keeper, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch_nothing(watch: GuardWatch, child: object, roots: object) -> None: ...

    monkeypatch.setattr(GuardWatch, "add", watch_nothing)
    spec = confined(ProcessSpec(argv=(sys.executable, "-I", "-c", INSIST), env=PATH, cwd=str(root)), root)
    async with started(keeper, spec) as child:
        await read_line(child)
        remove_the_placeholder(root)
        await wait_until((root / ".vscode" / "evil").exists)
    await wait_for_cleanups()

    (left,) = [path.name for path in root.iterdir()]
    assert left.startswith(".vscode.from-sandbox-")


@pytest.mark.promise("BOX-01")
async def test_server_with_a_grant_cannot_unguard_another_one(keeper: Keeper, root: Path) -> None:
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", INSIST), env=PATH, cwd=str(root))
    async with started(keeper, confined(spec, root)) as child:
        await read_line(child)
        remove = ProcessSpec(argv=("rm", "-rf", ".vscode"), env=PATH, cwd=str(root))
        granted = await run(keeper, confined(remove, root, writable=(".vscode",)))
        async with asyncio.timeout(20):
            await child.wait()
    await wait_for_cleanups()

    assert (granted.code, (root / ".vscode" / "evil").exists()) == (0, False)


@pytest.mark.promise("BOX-01")
async def test_host_of_another_user_does_not_remove_the_placeholders(keeper: Keeper, root: Path) -> None:
    """Each host locks a placeholder, which hosts of other users see, too."""
    wait = ProcessSpec(argv=("sh", "-c", "echo ready; read line"), env=PATH, cwd=str(root))
    async with started(keeper, confined(wait, root)) as child:
        await read_line(child)
        other = subprocess.Popen(
            ["flock", "--shared", root / ".cursor" / ".gitignore", "sh", "-c", "echo; read x"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert other.stdout is not None
        other.stdout.readline()
    await wait_for_cleanups()
    during = {path.name for path in root.iterdir()}
    other.communicate()
    await attack(keeper, root, files=())
    await wait_for_cleanups()

    assert (during, [*root.iterdir()]) == ({*GUARDED_NAMES}, [])


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize(
    ("name", "target"),
    [
        (".git/hooks/pre-commit", "tools/link/hook"),
        (".git/hooks/pre-commit", "tools/../other/hook"),
        (".claude/settings.json", "tools/link/hook"),
        (".git/hooks", "tools/link/hook"),
    ],
)
async def test_what_a_link_in_a_guarded_folder_leads_to_cannot_be_changed(
    keeper: Keeper, root: Path, name: str, target: str
) -> None:
    (root / name).parent.mkdir(parents=True)
    for path in ("tools/hook", "other/hook", "src/main.py"):
        (root / path).parent.mkdir()
        (root / path).write_text("mine")
    (root / "tools" / "link").symlink_to("../other")
    (root / name).symlink_to(f"{root}/{target}")
    tools = Files(root, trust=Trust.SANDBOXED)

    achieved = await attack(
        keeper, root, files=("tools/hook", "other/hook", "src/main.py"), moves=("tools", "other")
    )
    by_tools = [await tools.code("write", path=path, text="evil") for path in ("other/hook", "src/main.py")]
    (root / name).unlink()
    control = await attack(keeper, root, files=("tools/hook", "other/hook"), moves=("tools", "other"))

    assert (achieved, by_tools) == ({"write src/main.py"}, ["DENIED", "OK"])
    assert control == {"write tools/hook", "write other/hook", "move tools", "move other"}


@pytest.mark.promise("BOX-01")
async def test_file_tools_do_not_change_what_a_guarded_name_leads_to(root: Path) -> None:
    """A confined server is refused in such a folder."""
    (root / "envs").mkdir()
    (root / "envs" / "dev").write_text("mine")
    tools = Files(root, trust=Trust.SANDBOXED)
    control = await tools.code("write", path="envs/dev", text="mine")

    (root / ".envrc").symlink_to("envs/dev")

    assert (control, await tools.code("write", path="envs/dev", text="evil")) == ("OK", "DENIED")


@pytest.mark.promise("BOX-01")
async def test_files_that_links_in_the_users_home_lead_to_cannot_be_changed(
    keeper: Keeper, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder contains the user's shell profile, and the configuration of an editor."""
    home = root.parent / "home"
    (home / ".config").mkdir(parents=True)
    for link, target in (
        (".bashrc", "shell/rc"),
        (".config/editor", "editor"),
        ("project", "."),
        (".all", ".."),
    ):
        (home / link).symlink_to(root / target)
    files = ("shell/rc", "editor/init.lua", "src/main.py")
    for path in files:
        (root / path).parent.mkdir()
        (root / path).write_text("mine")
    tools = Files(root, trust=Trust.SANDBOXED)
    control = await attack(keeper, root, files=files)

    monkeypatch.setenv("HOME", str(home))
    achieved = await attack(keeper, root, files=files, moves=("shell",))
    by_tools = [await tools.code("write", path=path, text="evil") for path in files]

    assert control == {f"write {path}" for path in files}
    assert (achieved, by_tools) == ({"write src/main.py"}, ["DENIED", "DENIED", "OK"])


@pytest.mark.parametrize("number", [3, 600])
def test_links_in_the_users_home_that_are_not_followed_are_logged(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    home = root.parent / "home"
    home.mkdir()
    (root / "rc").touch()
    for name in range(number):
        (home / f".link{name}").symlink_to(root / "rc")
    monkeypatch.setenv("HOME", str(home))

    names = find_read_only_names([str(root)], ())

    logged = "not all links in the home folder were followed: files that the others lead to can be changed"
    assert (names[str(root)], logged in caplog.messages) == (
        (frozenset({"rc"}), False) if number == 3 else (frozenset(), True)
    )


@pytest.mark.promise("BOX-01")
async def test_settings_that_exist_cannot_be_changed(keeper: Keeper, root: Path) -> None:
    files = (
        ".pre-commit-config.yaml",
        "lefthook.yml",
        "lefthook-local.toml",
        "mise.toml",
        ".npmrc",
        ".gdbinit",
        "AGENTS.md",
        ".aider.conf.yml",
        ".yarnrc.yml",
        ".cargo/config.toml",
    )
    for path in files:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("mine")

    assert await attack(keeper, root, files=files, moves=(".cargo",)) == set()
    assert await attack(keeper, root, files=files, writable=("lefthook.yml",)) == {"write lefthook.yml"}


@pytest.mark.promise("BOX-01")
async def test_instructions_of_agents_are_guarded_in_the_root_only(keeper: Keeper, root: Path) -> None:
    """One of them is often a link to another. In other folders, the name is usual for other files."""
    (root / "docs").mkdir()
    files = ("AGENTS.md", "docs/AGENTS.md", "docs/agents.md")
    for path in files:
        (root / path).write_text("mine")
    (root / "CLAUDE.md").symlink_to("AGENTS.md")
    tools = Files(root, trust=Trust.SANDBOXED)

    achieved = await attack(keeper, root, files=(*files, "CLAUDE.md"))
    by_tools = [await tools.code("write", path=path, text="evil") for path in (*files, "GEMINI.md")]
    granted = await attack(keeper, root, files=files, writable=("AGENTS.md",))

    assert achieved == {"write docs/AGENTS.md", "write docs/agents.md"}
    assert by_tools == ["DENIED", "OK", "OK", "DENIED"]
    assert granted == {f"write {path}" for path in files}


@pytest.mark.promise("BOX-01")
async def test_link_to_instructions_that_is_replaced_is_reported(
    keeper: Keeper, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "AGENTS.md").write_text("mine")
    (root / "CLAUDE.md").symlink_to("AGENTS.md")
    code = "import os; os.remove('CLAUDE.md'); open('CLAUDE.md', 'w').write('evil'); os.symlink('x', 'GEMINI.md')"

    with caplog.at_level("INFO", logger="holdfast.sandbox.guard_watch"):
        await run(keeper, confined(python(code), root))
        await wait_for_cleanups()

    (record,) = caplog.records
    assert (record.levelname, vars(record)["names"]) == ("WARNING", ["CLAUDE.md", "GEMINI.md"])


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize("content", [b"gitdir: a\0b", b"\xff\xfe", b"", b"gitdir: " + b"a/" * 2000])
async def test_git_file_that_names_no_path_is_a_file_like_any_other(
    keeper: Keeper, root: Path, content: bytes
) -> None:
    (root / ".git").write_bytes(content)

    with contextlib.suppress(HoldfastError):  # some are refused
        assert await attack(keeper, root, files=(".git",)) == set()
    assert (root / ".git").read_bytes() == content


SET_ASIDE = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from holdfast.sandbox import placeholders
root = pathlib.Path(sys.argv[2], "root")
root.mkdir()
for number in range(100): (root / f".envrc.from-sandbox-{number}").touch()
(root / ".envrc").write_text("evil")
root.chmod(0o555)
fd = os.open(root, os.O_RDONLY)
try: os.rename(root / ".envrc", root / "control")
except PermissionError: print("denied")
placeholders._set_aside(str(root), fd, ".envrc")
print((root / ".envrc").exists(), oct(os.stat(root).st_mode & 0o777), len(os.listdir(root)))
"""


@pytest.mark.promise("BOX-01")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="needs a Python that the user nobody can run"
)
def test_file_of_a_server_is_renamed_even_if_the_names_are_taken_and_the_folder_is_read_only(
    open_folder: Path,
) -> None:
    place = open_folder.resolve() / "projects"
    place.mkdir()
    os.chown(place, 65534, 65534)

    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", SET_ASIDE, copy_source(open_folder), place], user=65534, group=65534,
        extra_groups=[], cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.splitlines() == ["denied", "False 0o555 101"], "the first is the control"


@pytest.mark.promise("BOX-01")
def test_file_of_a_server_that_cannot_be_renamed_is_deleted_or_closed(root: Path) -> None:
    (root / ".envrc").write_text("evil")
    (root / ".vscode").mkdir()
    too_long = "x" * 300
    fd = os.open(root, os.O_RDONLY)
    try:
        outcomes = [_rename_or_disable(fd, name, too_long) for name in (".envrc", ".vscode")]
    finally:
        os.close(fd)

    assert outcomes == ["it was deleted", "its mode was set to 0"]
    assert ((root / ".envrc").exists(), (root / ".vscode").stat().st_mode & 0o777) == (False, 0)


@pytest.mark.promise("BOX-01")
async def test_hidden_names_that_a_server_created_are_reported(
    keeper: Keeper, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No list of names is complete. A server may create those that are guarded only if they exist."""
    with caplog.at_level("INFO", logger="holdfast.sandbox.guard_watch"):
        await attack(keeper, root, files=("notes.txt",))
        await wait_for_cleanups()
        nothing = list(caplog.records)
        await attack(keeper, root, files=(".helix/languages.toml", ".unknown", "src/main.py"))
        await wait_for_cleanups()

    (record,) = caplog.records
    assert nothing == []
    assert (record.levelname, vars(record)["names"]) == ("WARNING", [".helix", ".unknown"])


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize("limit", [20_000, 30], ids=["names that sort earlier", "more names than are listed"])
async def test_names_that_matter_are_reported_however_many_others_there_are(
    keeper: Keeper, root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(guard_watch, "_MAX_LISTED", limit)
    created = (*(f".a{number:04}" for number in range(40)), ".cargo/config.toml")
    with caplog.at_level("INFO", logger="holdfast.sandbox.guard_watch"):
        await attack(keeper, root, files=created)
        await wait_for_cleanups()

    named, *rest = caplog.records
    assert ".cargo" not in sorted(path.name for path in root.iterdir())[:20], (
        "the first names would not contain it"
    )
    assert (named.levelname, vars(named)["names"][0]) == ("WARNING", ".cargo")
    assert ["too many names" in record.getMessage() for record in rest] == ([True] if limit == 30 else [])
