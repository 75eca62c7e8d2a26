"""Run `holdfast` commands and servers in processes of their own, without the time that Python takes to start and to import.

A test about the start of a process, about a terminal or about signals starts the real command instead.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol


class HasFileno(Protocol):
    """A file or a socket."""

    def fileno(self) -> int: ...


_server: "_ForkServer | None" = None
_starting = threading.Lock()


def run_holdfast(
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, like `subprocess.run`, and capture its output."""
    stdin, out, err = _Pipe("w"), _Pipe("r"), _Pipe("r")
    with stdin.theirs, out.theirs, err.theirs, stdin.ours:
        process = start_holdfast(words, stdin.theirs, out.theirs, err.theirs, cwd=cwd, env=env)
        stdin.ours.write(input or "")
    readers = [_Reader(out.ours), _Reader(err.ours)]
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(["holdfast", *words], status, *(reader.text() for reader in readers))


def run_program(name: str, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program in this folder to its end, as `python NAME` does."""
    return run_holdfast("-m", name.removesuffix(".py"), cwd=folder, env=env)


def start_holdfast(
    words: Sequence[str],
    *streams: HasFileno | int,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    is_in_terminal: bool = False,
) -> "ForkedProcess":
    """Start a command with these standard streams: input, output and error.

    Words that begin with `-m` are a module and its arguments, which run as by `python -m`.
    With `is_in_terminal`, it is the leader of a new session, and its standard input is its controlling terminal.
    """
    request = {
        "words": words,
        "cwd": str(cwd or Path.cwd()),
        "environ": dict(os.environ if env is None else env),
        "is_in_terminal": is_in_terminal,
    }
    return _get_server().start(request, streams)


class ForkedProcess:
    """A running command, used like a `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], pid: int, connection: socket.socket) -> None:
        self._words = words
        self.pid = pid
        self._connection = connection
        self._returncode: int | None = None
        self._waiting = threading.Lock()

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal that ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._returncode

    def wait(self, timeout: float | None = None) -> int:
        with self._waiting:
            if self._returncode is None:
                self._connection.settimeout(timeout)
                try:
                    answer = self._connection.recv(16)
                except (TimeoutError, BlockingIOError):
                    raise subprocess.TimeoutExpired(["holdfast", *self._words], timeout or 0) from None
                self._returncode = int(answer)
                self._connection.close()
            return self._returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class _Pipe:
    """A pipe to or from a command. `mode` is that of our end."""

    def __init__(self, mode: str) -> None:
        reading, writing = os.pipe()
        if mode == "r":
            self.ours, self.theirs = open(reading), open(writing, "w")  # noqa: PTH123, SIM115
        else:
            self.theirs, self.ours = open(reading), open(writing, "w")  # noqa: PTH123, SIM115


class _Reader(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._text = ""
        self.start()

    def run(self) -> None:
        with self._stream:
            self._text = self._stream.read()

    def text(self) -> str:
        self.join()
        return self._text


class _ForkServer:
    """The process of `tests/fork_server.py`. It ends with this process."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        script = Path(__file__).with_name("fork_server.py")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=clean,
            )
        self._sending = threading.Lock()

    def start(self, request: dict[str, Any], streams: Sequence[HasFileno | int]) -> ForkedProcess:
        ours, theirs = socket.socketpair()
        with theirs, self._sending:
            socket.send_fds(self._control, [b"\n"], [theirs.fileno()])
        numbers = [stream if isinstance(stream, int) else stream.fileno() for stream in streams]
        socket.send_fds(ours, [b"."], numbers)
        ours.sendall(json.dumps(request).encode() + b"\n")
        process_id = b""
        while not process_id.endswith(b"\n"):
            process_id += ours.recv(1)
        return ForkedProcess(request["words"], int(process_id), ours)

    def close(self) -> None:
        self._control.close()
        self._process.wait(10)


def _get_server() -> _ForkServer:
    global _server
    with _starting:
        if _server is None:
            _server = _ForkServer()
            atexit.register(_server.close)
        return _server
