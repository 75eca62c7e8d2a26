"""The end of what a server writes to its standard error: captured, capped, fit to be shown."""

import asyncio
import re
from typing import IO

from holdfast.model.mask import Mask

_MOST_BYTES = 16 * 1024
_MARGIN = 4 * 1024  # kept beside it, so that no half of a secret is shown at the cut
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)?", re.DOTALL)


class Tail(asyncio.Protocol):
    """Keeps the last bytes of a stream."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._kept = bytearray()
        self.over = asyncio.Event()
        """Set when the stream has ended."""

    def data_received(self, data: bytes) -> None:
        """Keep the end of it."""
        self._kept += data[-_MOST_BYTES - _MARGIN :]
        if len(self._kept) > 2 * (_MOST_BYTES + _MARGIN):
            del self._kept[: -_MOST_BYTES - _MARGIN]

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream has ended."""
        self.over.set()

    def text(self) -> str:
        """The last lines, without what would steer a terminal, and without secrets."""
        words = _ANSI.sub("", bytes(self._kept[-_MOST_BYTES - _MARGIN :]).decode(errors="replace"))
        plain = "".join(letter for letter in words if letter == "\n" or letter.isprintable())
        return self._mask.line(plain)[-_MOST_BYTES:].strip()


async def follow(stderr: IO[bytes], mask: Mask) -> tuple[Tail, asyncio.ReadTransport]:
    """Read a server's standard error from now on; the transport is closed by whoever asked."""
    transport, tail = await asyncio.get_running_loop().connect_read_pipe(lambda: Tail(mask), stderr)
    return tail, transport
