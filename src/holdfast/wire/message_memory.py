"""Limit the memory of long messages, while they arrive and until they are parsed."""

from typing import Self

LONG_LINE_BYTES = 64 * 1024
"""A line over this size is long. It is parsed in a thread. If it arrives in several chunks, its memory is counted."""
LONG_LINE_MEMORY_BYTES = 48 * 1024 * 1024
"""The most memory that all long lines, and all long bodies and events of HTTP responses, of one owner may use."""


class LongLineMemory:
    """Limits the memory of one owner's long lines and HTTP responses, while they arrive and until they are parsed.

    A line may grow only if the free memory is at least its new size, so a few lines cannot take all memory.
    """

    __slots__ = ("_free",)

    def __init__(self, total: int = LONG_LINE_MEMORY_BYTES) -> None:
        self._free = total

    def try_grow(self, size: int, added: int) -> bool:
        """Count `added` bytes for a line of `size` counted bytes. Return False if the line may not grow."""
        if size + added > self._free:
            return False
        self._free -= added
        return True

    def release(self, size: int) -> None:
        """Count these bytes as free again."""
        self._free += size


class MessageMemory:
    """Counts the memory of the body or of an event of an HTTP response, until it is parsed. Short ones are not counted."""

    __slots__ = ("_counted", "_long_line_memory")

    def __init__(self, long_line_memory: LongLineMemory) -> None:
        self._long_line_memory = long_line_memory
        self._counted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def try_grow_to(self, size: int) -> bool:
        """Count the message with this size. Return False if it may not grow."""
        if size <= max(LONG_LINE_BYTES, self._counted):
            return True
        if not self._long_line_memory.try_grow(self._counted, size - self._counted):
            return False
        self._counted = size
        return True

    def release(self) -> None:
        """Count the memory as free again, after the message was parsed or dropped."""
        self._long_line_memory.release(self._counted)
        self._counted = 0
