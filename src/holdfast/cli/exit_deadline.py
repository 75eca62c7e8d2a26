"""Ends the process if it does not end by itself: an agent, a tool or a file system may block its end forever."""

import os
import threading
from typing import Self

EXIT_SECONDS = 60.0
"""How long the process may take to close its sessions and servers. Usually, that takes less than a second."""
_EXIT_CODE = 1


class ExitDeadline:
    """After `start`, the process has `EXIT_SECONDS` to leave the block. Then it is ended.

    What is stored stays stored: the store does not depend on a clean end. The keeper process ends the servers.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def start(self) -> None:
        """Start the countdown. Further calls change nothing."""
        if self._timer is None:
            # A thread: the event loop itself may be blocked.
            self._timer = threading.Timer(EXIT_SECONDS, _end_process)
            self._timer.daemon = True
            self._timer.start()


def _end_process() -> None:
    message = f"Holdfast did not end by itself within {EXIT_SECONDS:g} s, and is ended now. What was stored stays stored.\n"
    os.write(2, message.encode())
    os._exit(_EXIT_CODE)
