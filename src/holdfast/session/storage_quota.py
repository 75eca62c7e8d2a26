"""How much one session may store."""

from collections.abc import Callable

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

MEGABYTE = 1_000_000


class StorageQuota:
    """The limit of what a session may store."""

    __slots__ = ("_max_bytes", "_stored_since", "_used_before")

    def __init__(self, max_megabytes: int, stored_since: Callable[[], int], used_before: int = 0) -> None:
        """`stored_since` returns the bytes stored since the session was opened. 0 megabytes: no limit."""
        self._max_bytes = max_megabytes * MEGABYTE
        self._stored_since = stored_since
        self._used_before = used_before

    def check(self) -> None:
        """Raise if the session is full."""
        if self._max_bytes and self._used_before + self._stored_since() >= self._max_bytes:
            raise HoldfastError(
                codes.SESSION_FULL,
                f"This session has stored {self._max_bytes // MEGABYTE} MB, which is the limit (`sessions.max_megabytes`).",
            )
