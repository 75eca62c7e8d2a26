"""Capture a server's standard error: show its last lines to the session, and log the rest."""

import asyncio
import logging
from typing import IO

from holdfast.masking.configured_secrets import secrets_in_spec
from holdfast.masking.mask import Mask
from holdfast.model.light_event import LightEvent
from holdfast.model.server import Lifetime, ServerSpec
from holdfast.model.visible_text import strip_invisible

log = logging.getLogger(__name__)

MAX_SHOWN = 2000
"""How many characters of a server's standard error are shown to the session after a failure."""
_KEPT_BYTES = 20 * 1024
_NEWLINE = ord("\n")


class ServerStderr(asyncio.Protocol):
    """Keeps the last bytes that a server wrote to its standard error.

    A session may see the lines that its own server wrote since a position. The lines of a shared server are only
    logged: they may be about another session.
    """

    def __init__(self, spec: ServerSpec) -> None:
        self._server = spec.name
        self._is_shared = spec.lifetime is Lifetime.HOST
        self._mask = Mask.of(secrets_in_spec(spec))
        self._kept = bytearray()
        self.position = 0
        """How many bytes the server has written so far."""
        self.closed = LightEvent()
        """Set at the end of the stream."""

    def data_received(self, data: bytes) -> None:
        self.position += len(data)
        self._kept += data[-_KEPT_BYTES:]
        if len(self._kept) > 2 * _KEPT_BYTES:
            del self._kept[:-_KEPT_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def report_since(self, position: int) -> str:
        """A paragraph with the lines since this position that the session may see; or "". The other lines are logged."""
        written = self._lines_since(position)
        if not written:
            return ""
        if self._is_shared or len(written) > MAX_SHOWN:
            log.info("server stderr", extra={"server": self._server, "stderr": written})
        if self._is_shared:
            return "Its output to stderr is only in the log, because several sessions share the server."
        return "\n".join(["It wrote to stderr:", *(f"| {line}" for line in _last_lines(written))])

    def _lines_since(self, position: int) -> str:
        """The whole lines that began after this position, without control characters and with secrets masked."""
        start = position - (self.position - len(self._kept))
        if start < 0 or (start > 0 and self._kept[start - 1] != _NEWLINE):
            # The line began before this position. A part of it may contain a part of a secret, which is not masked.
            start = self._kept.find(b"\n", max(start, 0)) + 1 or len(self._kept)
        text = strip_invisible(bytes(self._kept[start:]).decode(errors="replace"))
        return self._mask.mask_all(text.replace("\t", "    ")).strip()


async def capture_stderr(stderr: IO[bytes], spec: ServerSpec) -> tuple[ServerStderr, asyncio.ReadTransport]:
    """Start reading a server's standard error. The caller closes the transport."""
    transport, captured = await asyncio.get_running_loop().connect_read_pipe(
        lambda: ServerStderr(spec), stderr
    )
    return captured, transport


def _last_lines(text: str) -> list[str]:
    """The last lines, together at most `MAX_SHOWN` characters. A longer last line is cut at its start."""
    if len(text) <= MAX_SHOWN:
        return text.split("\n")
    kept = text[-MAX_SHOWN:]
    first, newline, rest = kept.partition("\n")
    return [f"… {first}"] if not newline else ["…", *rest.split("\n")]
