"""Wall-clock time as the store keeps it: whole microseconds since 1970, UTC."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEVER = datetime.min.replace(tzinfo=UTC)
"""Earlier than every stored time."""
_MICROSECOND = timedelta(microseconds=1)


def now() -> int:
    """The current time, in microseconds since 1970."""
    return time.time_ns() // 1000


def from_microseconds(microseconds: int) -> datetime:
    """The stored time as a datetime."""
    return _EPOCH + microseconds * _MICROSECOND  # faster than a new `timedelta`


def to_microseconds(moment: datetime) -> int:
    """The datetime as it is stored."""
    return (moment - _EPOCH) // _MICROSECOND
