"""Attack 44: a confined server keeps a file or folder open that another one moves into its root and out again.

It could change the file after a person has approved it: no server whose root contains the file runs any more.
"""

from pathlib import Path

import pytest

from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import confined, python, read_line, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

# Runs the code in each line of its input, and prints the result or the error.
SERVER = """
import ctypes, os
rename2 = ctypes.CDLL(None, use_errno=True).renameat2
def exchange(one, other):
    if rename2(-100, one.encode(), -100, other.encode(), 2): raise OSError(ctypes.get_errno(), '')
while True:
    try: print(eval(input()), flush=True)
    except OSError as error: print(os.strerror(error.errno), flush=True)
"""
MOVES = {
    "a folder": ("os.rename('project', 'inner/deep/project')", "os.open('project', os.O_RDONLY)"),
    "a file": ("os.rename('project/module.py', 'inner/deep/module.py')", "os.open('module.py', os.O_RDWR)"),
    "an exchange": ("exchange('project', 'inner/deep')", "os.open('.', os.O_RDONLY)"),
}


async def call(child: Child, code: str) -> str:
    child.stdin.write(f"{code}\n".encode())
    return await read_line(child)


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("how", MOVES)
async def test_nothing_is_moved_into_the_root_of_a_running_server(
    keeper: Keeper, root: Path, how: str
) -> None:
    inner, module = root / "inner" / "deep", root / "project" / "module.py"
    inner.mkdir(parents=True)
    module.parent.mkdir()
    module.write_text("old\n")
    move, keep = MOVES[how]

    async with started(keeper, confined(python(SERVER), inner)) as below:
        assert await call(below, "'ready'") == "ready"
        async with started(keeper, confined(python(SERVER), root)) as above:
            moved = await call(above, move)
            written = await call(above, "open('project/new', 'w').close()")
        kept = await call(below, keep)

    assert moved in ("Read-only file system", "Device or resource busy", "Invalid cross-device link")
    assert (written, module.read_text()) == ("None", "old\n")
    assert how == "an exchange" or kept == "No such file or directory"


@pytest.mark.promise("BOX-02")
async def test_control_a_server_that_runs_alone_can_move_files(keeper: Keeper, root: Path) -> None:
    (root / "inner").mkdir()
    (root / "project").mkdir()

    async with started(keeper, confined(python(SERVER), root / "inner")) as below:
        assert await call(below, "'ready'") == "ready"
    async with started(keeper, confined(python(SERVER), root)) as alone:
        assert await call(alone, "os.rename('project', 'inner/project')") == "None"
