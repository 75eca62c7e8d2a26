"""A person at a real terminal (a pseudo-terminal), with a real `holdfast chat` on it."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.journeys.editor import environment

PATIENCE = 30.0
CHAT = [sys.executable, "-m", "holdfast", "chat"]
_STEERING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|[\x01\x02\r]")


class Terminal:
    """Types, and reads what is shown."""

    def __init__(self, process: "subprocess.Popen[bytes]", descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._raw = b""
        self._read_up_to = 0

    @property
    def shown(self) -> str:
        """All that was shown, without what steers the terminal."""
        return _STEERING.sub("", self._raw.decode(errors="replace"))

    @property
    def raw(self) -> bytes:
        return self._raw

    def until(self, text: str) -> str:
        """Wait until this is shown after what was waited for last; gives all in between."""
        if not self._is_shown(text, time.monotonic() + PATIENCE):
            raise AssertionError(f"{text!r} is not shown:\n{self.shown[self._read_up_to :]}")
        at = self.shown.find(text, self._read_up_to)
        between = self.shown[self._read_up_to : at]
        self._read_up_to = at + len(text)
        return between

    def _is_shown(self, text: str, deadline: float) -> bool:
        while self.shown.find(text, self._read_up_to) < 0:
            if not self._read(deadline):
                return False
        return True

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def line(self, text: str) -> None:
        """Type a line at the prompt, and let its echo pass."""
        self.type(f"{text}\n")
        self.until("\n")

    def interrupt(self, text: str) -> str:
        """Press Ctrl-C until this is shown: readline does not notice one that comes between two of its waits."""
        for _ in range(5):
            time.sleep(0.2)  # nobody is that quick
            self.type("\x03")
            if self._is_shown(text, time.monotonic() + PATIENCE / 6):
                break
        return self.until(text)

    def end(self) -> int:
        """Wait until the program has left; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE)

    def terminate(self) -> int:
        """End the program by a signal; its exit code."""
        self.process.terminate()
        return self.end()

    def hang_up(self) -> int:
        """Close the terminal; the exit code of whoever was on it."""
        os.close(self._descriptor)
        self._descriptor = os.open(os.devnull, os.O_RDONLY)
        return self.process.wait(PATIENCE)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the other side is closed
            return False
        self._raw += data
        return bool(data)


@contextlib.contextmanager
def terminal(
    home: Path, cwd: Path, *arguments: str, environ: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """A terminal in this folder, whose Holdfast remembers in `home`."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    process = subprocess.Popen(
        [*CHAT, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**environment(home, environ), "TERM": "xterm-256color"},
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
    """Be the terminal's foreground process, so that Ctrl-C reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
