"""Run a toolkit server as a process on a free port."""

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.commands import ForkedProcess, start_holdfast

ROOT = Path(__file__).resolve().parent.parent.parent
_LISTENING = re.compile(r"listening url=(\S+)")


@contextmanager
def run_http_server(
    module: str,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    end: signal.Signals = signal.SIGTERM,
) -> Iterator[str]:
    """Run `python -m module --http 127.0.0.1:0` and yield its URL; it must exit with 0 after the signal `end`."""
    with start_http_server(module, *arguments, environ=environ, end=end) as (url, _):
        yield url


@contextmanager
def start_http_server(
    module: str,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    end: signal.Signals = signal.SIGTERM,
) -> Iterator[tuple[str, int]]:
    """Like `run_http_server`, but yield the process id, too."""
    words = ["-m", module, "--http", "127.0.0.1:0", *arguments]
    with tempfile.TemporaryFile("w+") as stderr:
        process = start_holdfast(words, 0, 1, stderr, cwd=ROOT, env={**os.environ, **(environ or {})})
        try:
            yield _address(process, stderr), process.pid
            process.send_signal(end)
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.wait()


def _address(process: ForkedProcess, stderr: IO[str]) -> str:
    output, deadline = "", time.monotonic() + 20
    while time.monotonic() < deadline:
        stderr.seek(0)
        output = stderr.read()
        if found := _LISTENING.search(output):
            return found[1]
        if process.returncode is not None:
            break
        time.sleep(0.02)
    raise AssertionError(f"The server does not listen: {output}")
