"""Attack 22: a server daemonises, makes a session of its own and ignores SIGTERM."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.sandbox.keeper import Keeper
from tests.sandbox.support import DAEMON, STAY, STUBBORN, confined, held, line, python, started

pytestmark = pytest.mark.anyio


@pytest.mark.promise("BOX-02", "LNK-11")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("walls", ["direct", "confined"])
async def test_nothing_of_it_outlives_its_end(keeper: Keeper, root: Path, walls: str) -> None:
    launch = python(DAEMON + STUBBORN + STAY, str(root / "lock"))

    async with started(keeper, confined(launch, root) if walls == "confined" else launch) as child:
        await line(child)

    assert (held(root / "lock"), Path(f"/proc/{child.pid}").exists()) == (False, False)


def test_ended_as_a_process_group_its_daemon_lives_on(root: Path) -> None:
    lock = root / "lock"
    server = subprocess.Popen(
        [sys.executable, "-c", DAEMON + STAY, str(lock)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert server.stdout is not None
    server.stdout.readline()

    os.killpg(server.pid, signal.SIGKILL)
    server.communicate()

    assert held(lock)
    os.kill(int(lock.read_text()), signal.SIGKILL)
