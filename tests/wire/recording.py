"""A transport that records what a peer writes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.wire.messages import Request
from holdfast.wire.peer import Peer


class RecordingTransport:
    def __init__(self) -> None:
        self.written = b""
        self.reading = True
        self.closed = False
        self._changed = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.written += data
        self._changed.set()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def has_hung_up(self) -> bool:
        return False

    async def close(self) -> None:
        self.closed = True

    @property
    def messages(self) -> list[Any]:
        return [json.loads(line) for line in self.written.splitlines()]

    async def wait_for(self, count: int) -> list[Any]:
        """Wait until this many messages are written, and return all of them."""
        async with asyncio.timeout(10):
            while len(messages := self.messages) < count:
                self._changed.clear()
                await self._changed.wait()
        return messages


@asynccontextmanager
async def recorded_peer(**options: Any) -> AsyncIterator[tuple[Peer, RecordingTransport]]:
    """A peer that is connected to the test itself."""
    peer, transport = Peer(**options), RecordingTransport()
    peer.connection_made(transport)
    yield peer, transport
    await peer.close()


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


async def echo(request: Request) -> Any:
    return request.params


async def settle(peer: Peer) -> None:
    """Wait until the peer has handled what has arrived. It pauses when that takes longer than a millisecond."""
    while peer._receiver._is_resume_scheduled:
        await asyncio.sleep(0)
