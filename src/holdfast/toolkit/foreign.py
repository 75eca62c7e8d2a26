"""Arguments in pydantic's words, for authors who speak it. Imported only for them: it costs about 100 ms."""

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.parameter import Issue

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def adapter(annotation: Any) -> "TypeAdapter[Any] | None":
    """What reads the type; None when pydantic cannot either."""
    try:
        return _adapter(annotation)
    except TypeError:  # cannot be remembered
        return _made(annotation)


def read(annotation: Any, name: str, raw: bytes) -> tuple[Any, list[Issue]]:
    """The value, or everything that is wrong with it."""
    from pydantic import ValidationError

    reader = adapter(annotation)
    assert reader is not None
    try:
        return reader.validate_json(raw), []
    except ValidationError as error:
        return None, [
            {
                "field": ".".join((name, *map(str, problem["loc"]))),
                "code": problem["type"],
                "message": problem["msg"],
            }
            for problem in error.errors(include_url=False, include_context=False, include_input=False)
        ]


def schema(annotation: Any) -> tuple[JsonObject, JsonObject]:
    """The schema of the type, and of what it refers to."""
    reader = adapter(annotation)
    assert reader is not None
    said = cast("dict[str, Json]", reader.json_schema(ref_template="#/$defs/{model}"))
    below = said.pop("$defs", {})
    return said, below if isinstance(below, dict) else {}


@cache
def _adapter(annotation: Any) -> "TypeAdapter[Any] | None":
    return _made(annotation)


def _made(annotation: Any) -> "TypeAdapter[Any] | None":
    from pydantic import PydanticSchemaGenerationError, TypeAdapter

    try:
        return TypeAdapter(annotation)
    except PydanticSchemaGenerationError:
        return None
