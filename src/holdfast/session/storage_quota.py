"""How much one session may store."""

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

MEGABYTE = 1_000_000


class StorageQuota:
    """The limit of what a session may store."""

    __slots__ = ("_max_bytes", "_used_before")

    def __init__(self, max_megabytes: int, used_before: int = 0) -> None:
        """`used_before`: the bytes that were stored before the session was opened. 0 megabytes: no limit."""
        self._max_bytes = max_megabytes * MEGABYTE
        self._used_before = used_before

    def check(self, stored_since: int) -> None:
        """Raise if the session is full. `stored_since`: the bytes stored since it was opened."""
        if self._max_bytes and self._used_before + stored_since >= self._max_bytes:
            raise HoldfastError(
                codes.SESSION_FULL,
                f"This session has stored {self._max_bytes // MEGABYTE} MB, which is the limit (`sessions.max_megabytes`).",
            )
