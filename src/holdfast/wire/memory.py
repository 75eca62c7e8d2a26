"""Two peers joined without a pipe, for a server that lives in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.wire.peer import Peer

_HIGH_WATER = 256 * 1024


@asynccontextmanager
async def joined(one: Peer, other: Peer, *, grace: float = 0.0) -> AsyncIterator[None]:
    """Let two peers of this process talk to each other; both are closed at the end."""
    one_way, other_way = _Wire(one, other), _Wire(other, one)
    one_way.back, other_way.back = other_way, one_way
    one.connected(one_way)
    other.connected(other_way)
    try:
        yield
    finally:
        await one.close(grace=grace)
        await other.close(grace=grace)


class _Wire:
    """One direction: holds what its reader has not taken yet, and tells its writer to wait past a mark."""

    def __init__(self, writer: Peer, reader: Peer) -> None:
        self._writer = writer
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0
        self._held = False
        self.back: _Wire

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._deliver)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > _HIGH_WATER:
            self._writer.pause_writing()

    def pause_reading(self) -> None:
        self.back._held = True

    def resume_reading(self) -> None:
        self.back._held = False
        self._loop.call_soon(self.back._deliver)

    async def close(self) -> None:
        self._held = False  # nothing more will come: what is left goes to the reader's own backlog
        self._deliver()
        self._reader.input_ended()

    def _deliver(self) -> None:
        if self._held or not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        self._writer.resume_writing()
        self._reader.received(data)
