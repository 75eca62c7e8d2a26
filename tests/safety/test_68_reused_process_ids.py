"""Attack 68: a program gets the process id of a host that was killed, so that the dead host's sessions seem to be open for ever."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, json, os, signal, sys
from pathlib import Path
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.store import owner
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.store_contract.factories import hold_session

async def hold(path, line):
    async with SqliteStore(path) as store:
        held = await hold_session(store)
        os.write(line, held.session_id.encode())
        signal.pause()

async def acquire(path, session):
    async with SqliteStore(path) as store:
        try:
            await store.acquire(SessionId(session))
            return "acquired"
        except HoldfastError as error:
            return error.code.name

path, is_protected = Path(sys.argv[1]), sys.argv[2] == "True"
if not is_protected:
    owner._start_time = lambda pid: "1" if Path(f"/proc/{pid}").exists() else None
reading, line = os.pipe()
host = os.fork()
if not host:
    asyncio.run(hold(path, line))
session = os.read(reading, 100).decode()
os.kill(host, signal.SIGKILL)
os.waitpid(host, 0)
Path("/proc/sys/kernel/ns_last_pid").write_text(str(host - 1))
other = os.fork()  # the kernel gives it the same id
if not other:
    signal.pause()
print(json.dumps([other == host, asyncio.run(acquire(path, session))]))
os.kill(other, signal.SIGKILL)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root chooses the next process id"
)
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
def test_session_of_a_killed_host_is_free_although_its_process_id_is_in_use(
    tmp_path: Path, *, is_protected: bool
):
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", SCRIPT,
         str(tmp_path / "holdfast.db"), str(is_protected)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    if done.returncode and not done.stdout:
        assert "ermission" in done.stderr or "Read-only" in done.stderr, done.stderr
        pytest.skip("the next process id cannot be chosen here")

    assert json.loads(done.stdout) == [True, "acquired" if is_protected else "SESSION_HELD"]
