"""Attack 22: a server starts a daemon in a new session that ignores SIGTERM."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import (
    DAEMON,
    IGNORE_SIGTERM,
    SLEEP_FOREVER,
    confined,
    is_locked,
    python,
    read_line,
    started,
)

pytestmark = pytest.mark.anyio


@pytest.mark.promise("BOX-02", "LNK-11")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("trust", ["direct", "confined"])
async def test_no_process_outlives_the_server(keeper: Keeper, root: Path, trust: str) -> None:
    spec = python(DAEMON + IGNORE_SIGTERM + SLEEP_FOREVER, str(root / "lock"))

    async with started(keeper, confined(spec, root) if trust == "confined" else spec) as child:
        await read_line(child)

    assert (is_locked(root / "lock"), Path(f"/proc/{child.pid}").exists()) == (False, False)


def test_control_daemon_outlives_a_killed_process_group(root: Path) -> None:
    lock = root / "lock"
    server = subprocess.Popen(
        [sys.executable, "-c", DAEMON + SLEEP_FOREVER, str(lock)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdout is not None
    server.stdout.readline()

    os.killpg(server.pid, signal.SIGKILL)
    server.communicate()

    assert is_locked(lock)
    os.kill(int(lock.read_text()), signal.SIGKILL)
