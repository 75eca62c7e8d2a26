"""Find the numbers that JSON does not have: encoders turn them into `null`."""

from math import isfinite
from typing import Any, cast


def is_all_finite(value: object) -> bool:
    """Whether no number inside a value of dictionaries and lists is NaN or an infinity."""
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, float):
            if not isfinite(part):
                return False
        elif isinstance(part, dict):
            waiting += cast("dict[Any, Any]", part).values()
        elif isinstance(part, list):
            waiting += cast("list[Any]", part)
    return True
