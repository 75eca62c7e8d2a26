"""A queue for lines that cannot be sent yet, because the remote peer reads too slowly."""

import asyncio
from collections import deque
from collections.abc import Callable


class SendQueue:
    """Keeps the lines of each owner in order. Owners, such as the sessions that share a connection, take turns."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[bytes, asyncio.Future[None]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, line: bytes, owner: str) -> "asyncio.Future[None]":
        """Append a line. The future is done when the line is written; cancel it to remove the line."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append((line, written))
        return written

    def write_next(self, write: Callable[[bytes], None]) -> None:
        """Write the next line of the owner whose turn it is."""
        owner, queue = next(iter(self._queues.items()))
        line, written = queue.popleft()
        del self._queues[owner]
        if queue:
            self._queues[owner] = queue  # at the end: another owner is next
        if not written.done():
            write(line)
            written.set_result(None)

    def fail(self, make_error: Callable[[], Exception]) -> None:
        """Discard all lines; their futures get an error."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for _, written in queue:
                if not written.done():
                    written.set_exception(make_error())
