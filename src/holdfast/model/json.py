"""Types for JSON values."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
else:
    Json = Any  # msgspec reads annotations at run time and does not support recursive aliases

JsonObject: TypeAlias = dict[str, Json]
