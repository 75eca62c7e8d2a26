"""The end of what a server writes to its standard error: captured, capped, fit to be shown."""

import asyncio
import re
from typing import IO

_MOST_BYTES = 16 * 1024
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)?", re.DOTALL)


class Tail(asyncio.Protocol):
    """Keeps the last bytes of a stream."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.over = asyncio.Event()
        """Set when the stream has ended."""

    def data_received(self, data: bytes) -> None:
        """Keep the end of it."""
        self._kept += data[-_MOST_BYTES:]
        if len(self._kept) > 2 * _MOST_BYTES:
            del self._kept[:-_MOST_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream has ended."""
        self.over.set()

    def text(self) -> str:
        """The last lines, without what would steer a terminal."""
        words = _ANSI.sub("", bytes(self._kept[-_MOST_BYTES:]).decode(errors="replace"))
        return "".join(letter for letter in words if letter == "\n" or letter.isprintable()).strip()


async def follow(stderr: IO[bytes]) -> tuple[Tail, asyncio.ReadTransport]:
    """Read a server's standard error from now on; the transport is closed by whoever asked."""
    transport, tail = await asyncio.get_running_loop().connect_read_pipe(Tail, stderr)
    return tail, transport
