"""The anchor: a copy of the head of the audit's chain, outside of the store. It shows if the chain was cut off or rewritten."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Head:
    """The number and digest of a chain's last record, as it was at some time. The number is 0 if the chain was empty."""

    seq: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest.hex()}"


class Anchor(Protocol):
    """Keeps one head."""

    def exists(self) -> bool:
        """Whether there is an anchored head, even if it cannot be read."""
        ...

    def read(self) -> Head | None:
        """The anchored head, or None if it is missing or unreadable."""
        ...

    def write(self, head: Head) -> None:
        """Replace the anchored head."""
        ...


class MemoryAnchor:
    """An anchor in memory."""

    def __init__(self) -> None:
        self._head: Head | None = None

    def exists(self) -> bool:
        return self._head is not None

    def read(self) -> Head | None:
        return self._head

    def write(self, head: Head) -> None:
        self._head = head
