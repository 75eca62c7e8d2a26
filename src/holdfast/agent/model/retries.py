"""Decides whether a request to a model is sent again, and after which delay."""

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from holdfast.agent.model.config import ModelLimits

_RETRIED_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
_FIRST_RETRY_SECONDS = 0.5


def retry_delay(response: httpx2.Response, attempts: int, limits: ModelLimits) -> float | None:
    """Return how many seconds to wait before the next attempt; None if the request is not sent again."""
    if response.status_code not in _RETRIED_STATUSES or attempts > limits.retries:
        return None
    seconds = _retry_after(response.headers.get("retry-after", ""))
    if seconds is None:
        seconds = _FIRST_RETRY_SECONDS * 2 ** (attempts - 1)
        return min(seconds, limits.max_retry_seconds) * random.uniform(0.5, 1.0)
    return seconds if seconds <= limits.max_retry_seconds else None


def _retry_after(header: str) -> float | None:
    """Return how many seconds an endpoint asks to wait, in the header `Retry-After`; None if it does not."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        due = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    now = datetime.now(UTC) if due.tzinfo is not None else datetime.now(UTC).replace(tzinfo=None)
    return max(0.0, (due - now).total_seconds())
