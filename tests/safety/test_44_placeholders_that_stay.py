"""Attack 44: a confined server keeps the placeholders of a folder below its root from being removed, by locks on them."""

import fcntl
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.start_confined import wait_for_cleanups
from tests.sandbox.support import confined, python, read_line, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

WAIT = "print('ready', flush=True); input()"
LOCK = """
import fcntl, glob, sys
files = [open(path) for path in glob.glob('inner/.*/.gitignore')]
for file in files: fcntl.flock(file, getattr(fcntl, sys.argv[1]) | fcntl.LOCK_NB)
print(len(files), flush=True); input()
"""


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("is_read_only", [False, True], ids=["can write", "cannot write"])
async def test_server_in_the_folder_above_cannot_keep_placeholders(
    keeper: Keeper, root: Path, *, is_read_only: bool
) -> None:
    inner = root / "inner"
    inner.mkdir()
    read_only = (str(root),) if is_read_only else ()

    async with started(keeper, confined(python(WAIT), inner)) as below:
        assert await read_line(below) == "ready"
        above = await keeper.spawn(confined(python(LOCK, "LOCK_SH"), root, read_only=read_only))
        locked = int(await read_line(above))
        assert locked == len(list(inner.iterdir())) > 10
    await wait_for_cleanups()
    left = list(inner.iterdir())
    await above.end(0.0)
    above.close()

    assert left == []


async def test_control_placeholders_that_another_user_s_host_has_locked_stay(
    keeper: Keeper, root: Path
) -> None:
    with ExitStack() as opened:
        async with started(keeper, confined(python(WAIT), root)) as child:
            assert await read_line(child) == "ready"
            for path in root.glob(".*/.gitignore"):
                fcntl.flock(opened.enter_context(path.open()), fcntl.LOCK_SH)
        await wait_for_cleanups()
        assert len(list(root.iterdir())) > 10
