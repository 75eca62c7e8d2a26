"""Split a byte stream into lines. Only the first and last bytes of a line over the limit are kept."""

from typing import TypeAlias

import msgspec

from holdfast.wire.message_memory import LONG_LINE_BYTES, LongLineMemory

BOM = b"\xef\xbb\xbf"
_HEAD_BYTES, _TAIL_BYTES = 1024, 256  # how much of an oversized line is kept


class OversizedLine(msgspec.Struct, frozen=True):
    """A line that was over the limit, or too large for the free memory: its size, its first bytes and its last bytes."""

    size: int
    head: bytes
    tail: bytes


Line: TypeAlias = bytes | bytearray | OversizedLine


class LineSplitter:
    """Splits one stream into lines. A chunk of bytes may contain several lines, or a part of one."""

    __slots__ = ("_buffer", "_head", "_is_first_line", "_limit", "_long_line_memory", "_size", "_tail")

    def __init__(self, limit: int, long_line_memory: LongLineMemory | None = None) -> None:
        self._limit = limit
        self._long_line_memory = long_line_memory or LongLineMemory(2 * limit)
        self._buffer = bytearray()  # the unfinished line, up to the limit
        self._size = 0  # the size of the unfinished line
        # The first and last bytes of an unfinished line that is too large for the buffer.
        self._head = self._tail = b""
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

    def clear(self) -> None:
        """Drop the unfinished line."""
        self.release(self._buffer)
        self._buffer = bytearray()
        self._size, self._head, self._tail = 0, b"", b""

    def _grow(self, piece: bytes) -> None:
        if not piece:
            return
        before = self._size
        self._size += len(piece)
        buffer = self._buffer
        # The buffer has the whole line so far, unless the line is over the limit.
        if self._size <= self._limit and len(buffer) == before and self._may_grow(before, len(piece)):
            buffer += piece
            return
        if buffer:
            self.release(buffer)
            self._head, self._tail = bytes(buffer[:_HEAD_BYTES]), bytes(buffer[-_TAIL_BYTES:])
            self._buffer = bytearray()
        self._head += piece[: _HEAD_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    def _may_grow(self, size: int, added: int) -> bool:
        """Whether the line may grow. If that makes it a long line, count its memory."""
        if size + added <= LONG_LINE_BYTES:
            return True
        return self._long_line_memory.try_grow(size, added if size > LONG_LINE_BYTES else size + added)

    def release(self, line: Line) -> None:
        """Count the memory of a line as free again, after it was parsed or dropped."""
        if isinstance(line, bytearray) and len(line) > LONG_LINE_BYTES:
            self._long_line_memory.release(len(line))

    def _finish(self, piece: bytes) -> Line:
        line: Line
        if not self._size and len(piece) <= self._limit:
            line = piece
        else:
            self._grow(piece)
            if len(self._buffer) == self._size:
                # A long line is not copied, because copying it would block the event loop.
                line = self._buffer if self._size > LONG_LINE_BYTES else bytes(self._buffer)
            else:
                line = OversizedLine(self._size, self._head, self._tail)
            self._buffer = bytearray()
            self._size, self._head, self._tail = 0, b"", b""
        if self._is_first_line:
            self._is_first_line = False
            if not isinstance(line, OversizedLine) and line.startswith(BOM):
                line = self._without_bom(line)
        return line

    def _without_bom(self, line: bytes | bytearray) -> bytes | bytearray:
        if isinstance(line, bytes):
            return line[len(BOM) :]
        before = len(line)  # a long line, whose memory is counted
        del line[: len(BOM)]  # without a copy
        still_counted = len(line) if len(line) > LONG_LINE_BYTES else 0
        self._long_line_memory.release(before - still_counted)
        return line


def _oversized(line: bytes) -> OversizedLine:
    return OversizedLine(len(line), line[:_HEAD_BYTES], line[-_TAIL_BYTES:])
