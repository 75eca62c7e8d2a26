"""Attack 44: a confined server changes what a person, or a direct session, runs next in the same project."""

import json
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.process import GUARDED_NAMES, ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.start_confined import wait_released
from tests.sandbox.support import PATH, confined, read_line, run, started

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
NESTED = ("packages/app/.git/hooks/pre-commit", "packages/app/.vscode/tasks.json")
FOLDERS = ("packages", "packages/app", "packages/app/.git", ".git", ".vscode", ".envrc", ".claude")


@pytest.fixture
def project(root: Path) -> Path:
    for path in (*EXISTING, *NESTED, "src/server.py", "notes.txt"):
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
        keeper, project, files=(*EXISTING, *MISSING, *NESTED, "notes.txt", "new/file"), moves=FOLDERS
    )

    assert achieved == {"write notes.txt", "write new/file"}
    assert (project / ".git" / "config").read_text() == "mine"


async def test_unconfined_server_changes_them_all(keeper: Keeper, project: Path) -> None:
    achieved = await attack(keeper, project, files=(*EXISTING, *MISSING, *NESTED), confine=False)

    assert achieved == {f"write {path}" for path in (*EXISTING, *MISSING, *NESTED)}


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
@pytest.mark.parametrize("count", [1, 300])
async def test_approved_program_cannot_be_changed_or_moved_away(
    keeper: Keeper, project: Path, count: int
) -> None:
    programs = tuple(f"src/part{number}/server.py" for number in range(count))
    for path in programs:
        (project / path).parent.mkdir(parents=True)
        (project / path).write_text("approved")
    attacked, moves = programs[-1:], ("src", str(Path(programs[-1]).parent), programs[-1])

    achieved = await attack(
        keeper,
        project,
        files=attacked,
        moves=moves,
        read_only=tuple(str(project / path) for path in programs),
    )
    control = await attack(keeper, project, files=attacked, moves=moves[:1])

    assert (achieved, control) == (set(), {f"write {programs[-1]}", "move src"})
