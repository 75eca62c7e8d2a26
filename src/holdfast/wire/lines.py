"""Split a byte stream into lines. A line over the limit is discarded while it arrives."""

from dataclasses import dataclass
from typing import TypeAlias

BOM = b"\xef\xbb\xbf"
_HEAD, _TAIL = 1024, 256


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """A line over the limit, of which only the first and the last bytes are kept."""

    size: int
    head: bytes
    tail: bytes


Line: TypeAlias = bytes | OversizedLine


class LineSplitter:
    """Splits one stream. The lines do not depend on how the bytes are chunked."""

    __slots__ = ("_buffer", "_head", "_limit", "_size", "_start", "_tail")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()  # the unfinished line, up to the limit
        self._size = 0
        self._head = b""  # of an oversized line: its first and last bytes
        self._tail = b""
        self._start = True

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that these bytes complete, without line ends."""
        first, *rest = data.split(b"\n")
        if not rest:
            self._grow(first)
            return []
        last = rest.pop()
        lines: list[Line] = [self._finish(first)]
        limit = self._limit
        for line in rest:
            lines.append(line if len(line) <= limit else _oversized(line))
        self._grow(last)
        return lines

    def end(self) -> list[Line]:
        """Return the last line if the stream ended without a line end."""
        return [self._finish(b"")] if self._size else []

    def _grow(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size <= self._limit:
            self._buffer += piece
            return
        buffer = self._buffer
        if buffer:
            self._head, self._tail = bytes(buffer[:_HEAD]), bytes(buffer[-_TAIL:])
            self._buffer = bytearray()
        self._head += piece[: _HEAD - len(self._head)]
        self._tail = (self._tail + piece[-_TAIL:])[-_TAIL:]

    def _finish(self, piece: bytes) -> Line:
        line: Line
        if not self._size and len(piece) <= self._limit:
            line = piece
        else:
            self._grow(piece)
            if self._size <= self._limit:
                line = bytes(self._buffer)
            else:
                line = OversizedLine(self._size, self._head, self._tail)
            self._buffer = bytearray()
            self._size, self._head, self._tail = 0, b"", b""
        if self._start:
            self._start = False
            if isinstance(line, bytes) and line.startswith(BOM):
                line = line[len(BOM) :]
        return line


def _oversized(line: bytes) -> OversizedLine:
    return OversizedLine(len(line), line[:_HEAD], line[-_TAIL:])
