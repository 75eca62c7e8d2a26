"""A user at a pseudo-terminal, with a real `holdfast chat` on it."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.commands import ForkedProcess, start_holdfast
from tests.journeys.editor import environment
from tests.journeys.vt100 import Screen

PATIENCE = 30.0
CHAT = ["holdfast", "chat"]
"""A command that begins with `holdfast` is forked from a process that has imported its modules."""


class Terminal:
    """Types, and reads the screen."""

    def __init__(self, process: "subprocess.Popen[bytes] | ForkedProcess", descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._screen = Screen()
        self._read_up_to = 0
        self.raw = b""
        """All output, with its control sequences."""

    @property
    def shown(self) -> str:
        return self._screen.text

    @property
    def coloured(self) -> str:
        """The text on the screen with its colours."""
        return self._screen.ansi

    def until(self, text: str) -> str:
        """Wait until this is shown after the text that was waited for last; returns all in between."""
        self._wait(text, self._read_up_to)
        at = self.shown.find(text, self._read_up_to)
        between = self.shown[self._read_up_to : at]
        self._read_up_to = at + len(text)
        return between

    def until_anywhere(self, text: str) -> None:
        """Wait until this is on the screen, even above the text that was waited for last."""
        self._wait(text, 0)

    def until_gone(self, text: str) -> None:
        """Wait until this is no longer on the screen."""
        deadline = time.monotonic() + PATIENCE
        while text in self.shown:
            if not self._read(deadline):
                raise AssertionError(f"{text!r} is still shown:\n{self.shown}")

    def _wait(self, text: str, start: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.shown.find(text, start) < 0:
            if not self._read(deadline):
                raise AssertionError(f"{text!r} is not shown:\n{self.shown[start:]}")

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def line(self, text: str) -> None:
        """Type a line at the prompt, and wait for its echo."""
        self.type(f"{text}\n")
        self.until("\n")

    def resize(self, *, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._descriptor, (rows, columns))

    def end(self) -> int:
        """Wait until the program has ended; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE)

    def terminate(self) -> int:
        """End the program by a signal; its exit code."""
        self.process.terminate()
        return self.end()

    def hang_up(self) -> int:
        """Close the terminal; the exit code of the program."""
        os.close(self._descriptor)
        self._descriptor = os.open(os.devnull, os.O_RDONLY)
        return self.process.wait(PATIENCE)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the program has closed it
            return False
        self.raw += data
        self._screen.feed(data)
        return bool(data)


@contextlib.contextmanager
def terminal(
    home: Path,
    cwd: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    command: Sequence[str] = CHAT,
) -> Iterator[Terminal]:
    """A chat in this folder, which keeps its data in `home`."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    variables = {**environment(home), "TERM": "xterm-256color", **(environ or {})}
    for name in ("COLUMNS", "LINES"):  # the size is the terminal's; pytest-xdist sets these
        if name not in (environ or {}):
            variables.pop(name, None)
    if command[0] == "holdfast":
        words = [*command[1:], *arguments]
        process = start_holdfast(words, theirs, theirs, theirs, cwd=cwd, env=variables, is_in_terminal=True)
    else:
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env=variables,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  there are no threads here yet
        )
    os.close(theirs)
    screen = Terminal(process, ours)
    try:
        yield screen
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(screen._descriptor)


def _take_terminal() -> None:
    """Make this the terminal's foreground process, so that Ctrl-C reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
