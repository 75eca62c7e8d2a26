"""Kill the process if it takes too long to exit: an agent, a tool or a file system may block it forever."""

import os
import threading
from typing import Self

EXIT_SECONDS = 60.0
"""How long the process may take to close its sessions and servers."""
_EXIT_CODE = 1


class ExitDeadline:
    """After `start`, the process has `EXIT_SECONDS` to leave the block. Then it is killed.

    No stored event is lost: the store does not depend on a clean exit. The keeper process ends the servers.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def start(self) -> None:
        """Start the countdown. A second call does nothing."""
        if self._timer is None:
            # In a thread, because the event loop itself may be blocked.
            self._timer = threading.Timer(EXIT_SECONDS, _end_process)
            self._timer.daemon = True
            self._timer.start()


def _end_process() -> None:
    message = f"Holdfast did not exit within {EXIT_SECONDS:g} s, so the process was killed. Everything that was stored is safe.\n"
    os.write(2, message.encode())
    os._exit(_EXIT_CODE)
