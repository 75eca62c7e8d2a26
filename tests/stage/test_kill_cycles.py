"""Kill the server or the host at random moments: no browser is left after five seconds, and no folder at the next start.

`make stage-kill` runs 50 cycles of each kind.
"""

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.builtin.stage.browser_folder import BrowserFolder
from holdfast.builtin.stage.find_browser import find_browser
from tests.stage.processes import Descendants, wait_until

CYCLES = int(os.environ.get("HOLDFAST_STAGE_KILLS", "1"))
LATEST = float(os.environ.get("HOLDFAST_STAGE_KILL_SECONDS", "4"))
BASE = (
    Path("/tmp" if os.geteuid() == 0 else os.environ.get("TMPDIR", "/tmp")) / f"holdfast-stage-{os.getuid()}"
)
pytestmark = [
    pytest.mark.skipif(find_browser() is None, reason="There is no Chromium."),
    pytest.mark.timeout(60 + 30 * CYCLES),
]
HOST = """
import asyncio, sys
from holdfast import Host, settings

async def main():
    async with Host(settings=settings.load()) as host, host.session(cwd=sys.argv[1], tools=["stage.*"]) as session:
        await session.call("stage.open", {})
        print("opened", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.promise("STG-02")
@pytest.mark.parametrize("victim", ["server", "host"])
def test_no_browser_and_no_folder_is_left_when_the_server_or_the_host_is_killed(victim: str, tmp_path: Path):
    seen_browser = 0
    for cycle in range(CYCLES):
        # The last cycle waits until the browser runs, so that every run of this test kills one.
        moment = random.uniform(0, LATEST) if cycle < CYCLES - 1 else None
        seen_browser += _kill_once(victim, tmp_path, moment)

    assert seen_browser >= 1
    folder = BrowserFolder()  # the next start
    folder.remove()
    assert _leftovers() == []


def _kill_once(victim: str, tmp_path: Path, moment: float | None) -> bool:
    process = _start(victim, tmp_path)
    below = Descendants(process.pid)
    deadline = time.monotonic() + (60 if moment is None else moment)
    while time.monotonic() < deadline:
        below.look()
        if moment is None and _has_opened(process):
            break
        time.sleep(0.02)
    had_browser = any("--type=" in command for command in below.commands())
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: below.commands() == [], 5, below.commands)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    return had_browser


def _start(victim: str, tmp_path: Path) -> subprocess.Popen[bytes]:
    env = {
        **os.environ,
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
        "HOLDFAST_CONFIG": str(_empty(tmp_path / "config.toml")),
    }
    arguments = ["-c", HOST, str(tmp_path)] if victim == "host" else ["-m", "holdfast", "builtin", "stage"]
    process = subprocess.Popen(
        [sys.executable, "-P", *arguments],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    if victim == "server":
        assert process.stdin
        client: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        messages: list[dict[str, Any]] = [
            {"id": 1, "method": "initialize", "params": client},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "open", "arguments": {}}},
        ]
        for message in messages:
            process.stdin.write(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")
            process.stdin.flush()
    return process


def _empty(path: Path) -> Path:
    path.touch()
    return path


def _has_opened(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    assert process.stdout
    data = process.stdout.read() or b""
    return b"opened" in data or b'"tab"' in data


def _leftovers() -> list[Path]:
    """Folders of browsers whose server does not run."""
    found: list[Path] = []
    for folder in BASE.glob("b*"):
        if folder.suffix:
            continue
        try:
            with folder.with_suffix(".lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append(folder)
        except FileNotFoundError:
            if folder.exists():  # it was not removed just now
                found.append(folder)
        except OSError:
            continue  # its server runs
    return found
