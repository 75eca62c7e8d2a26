"""Types for JSON values, and a check for numbers that JSON does not have."""

from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
else:
    Json = Any  # msgspec reads annotations at run time and does not support recursive aliases

JsonObject: TypeAlias = dict[str, Json]


def is_all_finite(value: object) -> bool:
    """Whether all numbers in a value of dictionaries and lists are finite. msgspec encodes NaN and the infinities as `null`."""
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
