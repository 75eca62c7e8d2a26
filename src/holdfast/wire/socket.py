"""Connect a peer to a stream socket."""

import asyncio
import select
from typing import cast

from holdfast.wire.peer import Peer

_FLUSH_SECONDS = 2.0  # how long closing waits until everything is written
# poll() reports that the remote end has closed its output only if this event is requested. Only Linux has it.
_HANG_UP_EVENTS = getattr(select, "POLLRDHUP", 0)


class SocketTransport(asyncio.Protocol):
    """Connects a socket and a peer. It is an asyncio protocol for the socket, and the transport of the peer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer.connection_made(self)

    def data_received(self, data: bytes) -> None:
        self._peer.data_received(data)

    def eof_received(self) -> bool:
        self._peer.eof_received()
        return True  # keep the connection open: answers can still be sent

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._peer.connection_lost()

    def pause_writing(self) -> None:
        self._peer.pause_writing()

    def resume_writing(self) -> None:
        self._peer.resume_writing()

    # Called by the peer

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._closed.is_set():
            self._transport.write(data)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def has_hung_up(self) -> bool:
        if self._transport is None or self._transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), _HANG_UP_EVENTS)
        return bool(poll.poll(0))

    async def close(self) -> None:
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._closed.wait()
        except TimeoutError:
            pass
        finally:
            if not self._closed.is_set():
                self._transport.abort()
