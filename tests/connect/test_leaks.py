"""Neither hundreds of sessions nor a killed host leave processes, descriptors, tasks or files behind."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from holdfast.connect.connection import ConnectOptions
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from tests.connect.conftest import HostFactory, counter_entry, hostile_entry
from tests.connect.processes import (
    count_descriptors,
    count_tasks,
    is_alive,
    kill,
    pids_with_variable,
    server_pids,
    temporary_files,
    wait_until,
)

pytestmark = pytest.mark.anyio

CYCLES = int(os.environ.get("HOLDFAST_CYCLES", "10"))
SERVERS = 20


@pytest.mark.promise("LNK-04")
@pytest.mark.promise("LNK-06")
@pytest.mark.timeout(1800)
async def test_sessions_leak_nothing_however_they_end(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = ConnectOptions(end_seconds=0.2)
    ready = {
        "good": counter_entry(),
        "exits": hostile_entry("exits"),
        "missing": {"command": "/no/such/program"},
    }
    never_ready = {**ready, "mute": counter_entry("--mute")}
    async with make_host(ready, options=options) as host, make_host(never_ready, options=options) as waiting:
        for number in range(5):
            await _cycle(host, waiting, tmp_path, number)  # warm-up: caches and threads stay
        before = await _resources_in_use()
        for number in range(CYCLES):
            await _cycle(host, waiting, tmp_path, number)
        await wait_until(lambda: server_pids() == set())
        after = await _resources_in_use()

        assert after == before
        assert [(kept.links._by_scope, kept._parts.live._sessions) for kept in (host, waiting)] == [
            ({}, {})
        ] * 2


async def _cycle(host: Host, waiting: Host, folder: Path, number: int) -> None:
    match number % 5:
        case 0:  # closed normally
            async with host.session(cwd=folder) as session:
                assert (await session.call("good.count")).text == "1"
        case 1:  # closed by another task while it starts
            session = await waiting.open(OpenOptions(cwd=folder))
            await asyncio.sleep(number % 7 / 50)
            await asyncio.create_task(session.close())
        case 2:  # cancelled
            task = asyncio.create_task(_until_cancelled(waiting, folder))
            await asyncio.sleep(number % 7 / 50)
            task.cancel()
            await asyncio.wait([task])
        case 3:  # its server killed in mid-call
            session = await host.open(OpenOptions(cwd=folder, only_server="good"))
            pid = (await session.call("good.whoami")).data["pid"]
            runs = asyncio.Event()
            call = asyncio.create_task(session.call("good.linger", {}, on_progress=lambda _: runs.set()))
            await runs.wait()
            kill(pid)
            assert (await call).code == "CONNECTION_CLOSED"
            assert (await session.call("good.count")).state_lost
            await session.close()
        case _:  # closed by an exception
            with pytest.raises(ZeroDivisionError):
                async with host.session(cwd=folder):
                    raise ZeroDivisionError


async def _until_cancelled(host: Host, folder: Path) -> None:
    async with host.session(cwd=folder):
        await asyncio.Event().wait()


async def _resources_in_use() -> dict[str, object]:
    gc.collect()
    await asyncio.sleep(0.05)
    return {
        "files": count_descriptors(),
        "tasks": count_tasks(),
        "temporary": temporary_files(),
        "servers": server_pids(),
    }


HOST = """
import asyncio, json, sys
from pathlib import Path
from holdfast import settings
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions

async def main():
    folder = Path(sys.argv[1])
    (folder / "config.toml").touch()
    environ = {
        "HOLDFAST_DATA_DIR": str(folder / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(folder / "user.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(folder / "host.json"),
    }
    loaded = settings.load(folder / "config.toml", environ)
    async with Host(settings=loaded, servers=json.loads(sys.argv[2])) as host:
        session = await host.open(OpenOptions(cwd=folder))
        for name in json.loads(sys.argv[2]):
            if name.startswith("parent"):
                await session.call(f"{name}.orphan")
        await session.wait_ready()
        assert session.refusals == (), session.refusals
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.promise("LNK-11")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can promise this")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_servers_are_gone_two_seconds_after_the_host_was_killed(tmp_path: Path, how: int):
    servers = {
        **{f"good{n}": counter_entry() for n in range(SERVERS // 2)},
        **{f"stubborn{n}": counter_entry("--stubborn") for n in range(SERVERS // 4)},
        **{f"parent{n}": counter_entry() for n in range(SERVERS // 4)},
    }
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(tmp_path), json.dumps(servers)], stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    with host.stdout:
        assert await asyncio.to_thread(host.stdout.readline) == b"ready\n"
    running = server_pids()

    host.send_signal(how)
    host.wait()
    killed_at = time.monotonic()
    await wait_until(lambda: not any(map(is_alive, running)), 2.0)

    assert len(running) >= SERVERS + SERVERS // 4
    assert (pids_with_variable(f"tests_marker={os.getpid()}"), time.monotonic() - killed_at < 2.0) == (
        set(),
        True,
    )
