"""Cut a byte stream into lines; a line over the limit is dropped as it streams in."""

from dataclasses import dataclass
from typing import TypeAlias

BOM = b"\xef\xbb\xbf"
_HEAD, _TAIL = 1024, 256


@dataclass(frozen=True, slots=True)
class Overlong:
    """A line that was longer than the limit: its beginning and end are all that is left of it."""

    size: int
    head: bytes
    tail: bytes


Line: TypeAlias = bytes | Overlong


class Lines:
    """The lines of one stream. The same bytes give the same lines, wherever they are cut."""

    __slots__ = ("_buffer", "_head", "_limit", "_size", "_start", "_tail")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()  # the unfinished line, while it is within the limit
        self._size = 0
        self._head = b""  # once it is over the limit: what is kept of it
        self._tail = b""
        self._start = True

    def feed(self, data: bytes) -> list[Line]:
        """The lines that these bytes complete, without their line ends."""
        first, *rest = data.split(b"\n")
        if not rest:
            self._grow(first)
            return []
        last = rest.pop()
        lines: list[Line] = [self._finish(first)]
        limit = self._limit
        for line in rest:
            lines.append(line if len(line) <= limit else _overlong(line))
        self._grow(last)
        return lines

    def end(self) -> list[Line]:
        """The last line, if the stream ended without a line end."""
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
                line = Overlong(self._size, self._head, self._tail)
            self._buffer = bytearray()
            self._size, self._head, self._tail = 0, b"", b""
        if self._start:
            self._start = False
            if isinstance(line, bytes) and line.startswith(BOM):
                line = line[len(BOM) :]
        return line


def _overlong(line: bytes) -> Overlong:
    return Overlong(len(line), line[:_HEAD], line[-_TAIL:])
