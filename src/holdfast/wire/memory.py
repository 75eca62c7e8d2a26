"""Connect two peers in memory, for servers that run in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.wire.peer import Peer

_HIGH_WATER = 256 * 1024


@asynccontextmanager
async def connect_memory(one: Peer, other: Peer, *, grace: float = 0.0) -> AsyncIterator[None]:
    """Connect two peers with each other; both are closed at the end."""
    one_way, other_way = _MemoryTransport(one, other), _MemoryTransport(other, one)
    one_way.back, other_way.back = other_way, one_way
    one.connection_made(one_way)
    other.connection_made(other_way)
    try:
        yield
    finally:
        await one.close(grace=grace)
        await other.close(grace=grace)


class _MemoryTransport:
    """One direction: buffers what the reader has not received, and pauses the writer above the high-water mark."""

    def __init__(self, writer: Peer, reader: Peer) -> None:
        self._writer = writer
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._buffer: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self.back: _MemoryTransport

    def write(self, data: bytes) -> None:
        if not self._buffer:
            self._loop.call_soon(self._deliver)
        self._buffer.append(data)
        self._size += len(data)
        if self._size > _HIGH_WATER:
            self._writer.pause_writing()

    def pause_reading(self) -> None:
        self.back._is_paused = True

    def resume_reading(self) -> None:
        self.back._is_paused = False
        self._loop.call_soon(self.back._deliver)

    async def close(self) -> None:
        self._is_paused = False  # the rest goes to the reader's own backlog
        self._deliver()
        self._reader.eof_received()

    def _deliver(self) -> None:
        if self._is_paused or not self._buffer:
            return
        data = b"".join(self._buffer)
        self._buffer.clear()
        self._size = 0
        self._writer.resume_writing()
        self._reader.data_received(data)
