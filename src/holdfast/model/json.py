"""What JSON can say, as a type."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
else:
    Json = Any  # decoders that read annotations at run time know no recursive alias

JsonObject: TypeAlias = dict[str, Json]
