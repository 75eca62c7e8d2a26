"""Wall-clock time as it is kept: whole microseconds since 1970, UTC."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now() -> int:
    """The time it is."""
    return time.time_ns() // 1000


def from_stored(microseconds: int) -> datetime:
    """The moment that was kept."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_stored(moment: datetime) -> int:
    """The moment as it is kept."""
    return (moment - _EPOCH) // _MICROSECOND
