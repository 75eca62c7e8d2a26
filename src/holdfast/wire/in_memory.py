"""Connect two peers in memory, for servers that run in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.wire.peer import Peer

_HIGH_WATER_BYTES = 256 * 1024  # with more unread bytes, the writer is paused


@asynccontextmanager
async def connect_memory(left: Peer, right: Peer, *, grace: float = 0.0) -> AsyncIterator[None]:
    """Connect two peers with each other. When the block ends, handlers get `grace` seconds to finish; then both peers are closed."""
    to_right, to_left = _MemoryTransport(left, right), _MemoryTransport(right, left)
    to_right.opposite, to_left.opposite = to_left, to_right
    left.connection_made(to_right)
    right.connection_made(to_left)
    try:
        yield
    finally:
        await left.close(grace=grace)
        await right.close(grace=grace)


class _MemoryTransport:
    """One direction of the connection. While its buffer is too large, the writer is paused."""

    def __init__(self, writer: Peer, reader: Peer) -> None:
        self._writer = writer
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._buffer: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self.opposite: _MemoryTransport  # the other direction of the connection

    def write(self, data: bytes) -> None:
        if not self._buffer:
            self._loop.call_soon(self._deliver)
        self._buffer.append(data)
        self._size += len(data)
        if self._size > _HIGH_WATER_BYTES:
            self._writer.pause_writing()

    def pause_reading(self) -> None:
        self.opposite._is_paused = True

    def resume_reading(self) -> None:
        self.opposite._is_paused = False
        self._loop.call_soon(self.opposite._deliver)

    def has_hung_up(self) -> bool:
        return False  # the end is delivered even while reading is paused

    async def close(self) -> None:
        self._is_paused = False  # deliver everything: the reader keeps it in its backlog
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
