"""A real process that the tests send raw bytes to."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.wire import echo_process


class Process:
    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        assert popen.stdin
        assert popen.stdout
        self.popen = popen
        self.stdin: IO[bytes] = popen.stdin
        self.stdout: IO[bytes] = popen.stdout

    def send(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def read(self) -> Any:
        return json.loads(self.stdout.readline())

    def ask(self, request_id: int | str) -> Any:
        self.send(
            json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "m", "params": {}}).encode() + b"\n"
        )
        return self.read()

    def peak_bytes(self) -> int:
        """The peak memory of the process so far."""
        status = Path(f"/proc/{self.popen.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


@contextmanager
def echo() -> Iterator[Process]:
    """Run an echo server, which must exit by itself when its input ends."""
    command = [sys.executable, "-m", echo_process.__name__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as popen:
        try:
            process = Process(popen)
            process.ask("ready")
            yield process
            process.stdin.close()
            assert popen.wait(10) == 0
        finally:
            popen.kill()
