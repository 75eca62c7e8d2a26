"""Split a byte stream into lines. Of a line over the limit, only the first and last bytes are kept."""

from dataclasses import dataclass
from typing import TypeAlias

BOM = b"\xef\xbb\xbf"
_HEAD_BYTES, _TAIL_BYTES = 1024, 256  # kept of an oversized line


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """The size, the first bytes and the last bytes of a line over the limit."""

    size: int
    head: bytes
    tail: bytes


Line: TypeAlias = bytes | OversizedLine


class LineSplitter:
    """Splits one stream into lines, however its bytes are chunked."""

    __slots__ = ("_buffer", "_head", "_is_first_line", "_limit", "_size", "_tail")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()  # the unfinished line, up to the limit
        self._size = 0  # of the unfinished line
        self._head = b""  # the first and last bytes of the unfinished line, once it is over the limit
        self._tail = b""
        self._is_first_line = True

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that these bytes complete, without the newlines."""
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
        """Return the last line if the stream did not end with a newline."""
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
            self._head, self._tail = bytes(buffer[:_HEAD_BYTES]), bytes(buffer[-_TAIL_BYTES:])
            self._buffer = bytearray()
        self._head += piece[: _HEAD_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-_TAIL_BYTES:])[-_TAIL_BYTES:]

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
        if self._is_first_line:
            self._is_first_line = False
            if isinstance(line, bytes) and line.startswith(BOM):
                line = line[len(BOM) :]
        return line


def _oversized(line: bytes) -> OversizedLine:
    return OversizedLine(len(line), line[:_HEAD_BYTES], line[-_TAIL_BYTES:])
