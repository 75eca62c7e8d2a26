"""Captures a server's standard error: shows the last lines to the session, and passes all of it to the server's log."""

import asyncio
import logging
from time import monotonic
from typing import IO, cast

from holdfast.connect.log_files import logs_command
from holdfast.connect.server_log import ServerLog
from holdfast.masking.configured_secrets import secrets_in_spec
from holdfast.masking.escapes import MAX_ENCODED_LENGTH
from holdfast.masking.mask import Mask
from holdfast.model.light_event import LightEvent
from holdfast.model.loop_pipes import connect_read_pipe
from holdfast.model.server import Lifetime, ServerSpec
from holdfast.model.visible_text import strip_invisible
from holdfast.wire.loop_throttle import LoopThrottle

log = logging.getLogger(__name__)

MAX_SHOWN = 2000
"""How many characters of a server's standard error are shown to the session after a failure."""
_KEPT_BYTES = 20 * 1024
_REPORTED_BYTES = 8 * 1024
"""How much is masked for a report. More than is shown, so that a secret at the beginning is recognised."""
_READ_SECONDS = 20e-6  # about how long the event loop takes to read a chunk
_NEWLINE = ord("\n")


class ServerStderr(asyncio.Protocol):
    """Keeps the last bytes that a server wrote to its standard error.

    The lines of a server that sessions share are only logged, because they may be about another session.
    """

    def __init__(
        self, spec: ServerSpec, throttle: LoopThrottle | None = None, server_log: ServerLog | None = None
    ) -> None:
        self._throttle = throttle or LoopThrottle()
        self._server_log = server_log
        self._transport: asyncio.ReadTransport | None = None
        self._masked = (0, 0, "")  # the start, the end and the text of what was masked last
        self._logged = 0  # the position up to which everything was logged
        self._server = spec.name
        self._is_shared = spec.lifetime is Lifetime.HOST
        self._mask = Mask.of(secrets_in_spec(spec))
        self._kept = bytearray()
        self.position = 0
        """How many bytes the server has written so far."""
        self.closed = LightEvent()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of ReadTransport.
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        started = monotonic()
        self.position += len(data)
        self._kept += data[-_KEPT_BYTES:]
        if len(self._kept) > 2 * _KEPT_BYTES:
            del self._kept[:-_KEPT_BYTES]
        if self._server_log is not None:
            self._server_log.add(data)
        throttle, transport = self._throttle, self._transport
        is_slice_over = throttle.charge(monotonic() - started + _READ_SECONDS)
        if transport is not None and (is_slice_over or throttle.must_wait(started)):
            transport.pause_reading()
            throttle.call_in_turn(transport.resume_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    async def report_since_throttled(self, position: int) -> str:
        """Like `report_since`, but wait for the throttle first: hundreds of calls may fail at once."""
        if self._throttle.must_wait(monotonic()):
            await self._throttle.pause()
        started = monotonic()
        report = self.report_since(position)
        self._throttle.charge_since(started)
        return report

    def report_since(self, position: int) -> str:
        """The lines since this position that the session may see, as a paragraph; empty if there are none."""
        written = self._lines_since(position)
        if not written:
            return ""
        has_more = len(written) > MAX_SHOWN
        in_file = has_more and self._server_log is not None
        if self._logged < self.position and (self._is_shared or (has_more and not in_file)):
            log.info("stderr of %s", self._server, extra={"server": self._server, "stderr": written})
            self._logged = self.position
        if self._is_shared:
            return "Its output to stderr is only in the log, because several sessions share the server."
        where = f" (to see all of it: {logs_command(self._server)})" if in_file else ""
        return "\n".join([f"It wrote to stderr{where}:", *(f"| {line}" for line in _last_lines(written))])

    def text_since(self, position: int) -> str:
        """The lines since this position; empty if sessions share the server."""
        return "" if self._is_shared else self._lines_since(position)

    def _lines_since(self, position: int) -> str:
        """The last whole lines that began after this position, masked and without control characters."""
        kept = self._kept
        start = position - (self.position - len(kept))
        if start < 0 or (start > 0 and kept[start - 1] != _NEWLINE):
            # The line began before this position. Its rest may begin with a part of a secret, which is not masked.
            start = kept.find(b"\n", max(start, 0)) + 1 or len(kept)
        is_cut = len(kept) - start > _REPORTED_BYTES
        if is_cut:
            start = len(kept) - _REPORTED_BYTES
            if newline := kept.find(b"\n", start) + 1:
                start, is_cut = newline, False
        begin = self.position - len(kept) + start
        if self._masked[:2] != (begin, self.position):
            text = strip_invisible(bytes(kept[start:]).decode(errors="replace"))
            masked = self._mask.mask_all(text.replace("\t", "    "))
            # The text may begin with the rest of a fragment of a secret. The rest is not recognised, but it is shorter than a fragment.
            shown = masked[MAX_ENCODED_LENGTH:] if is_cut else masked
            self._masked = (begin, self.position, shown.strip())
        return self._masked[2]


async def capture_stderr(
    stderr: IO[bytes], spec: ServerSpec, throttle: LoopThrottle, server_log: ServerLog | None = None
) -> tuple[ServerStderr, asyncio.ReadTransport]:
    """Start reading a server's standard error. The caller closes the transport."""
    transport, captured = await connect_read_pipe(lambda: ServerStderr(spec, throttle, server_log), stderr)
    return captured, transport


def _last_lines(text: str) -> list[str]:
    """The last lines, at most `MAX_SHOWN` characters. A longer last line is cut at its start."""
    if len(text) <= MAX_SHOWN:
        return text.split("\n")
    kept = text[-MAX_SHOWN:]
    first, newline, rest = kept.partition("\n")
    return [f"… {first}"] if not newline else ["…", *rest.split("\n")]
