"""Arguments with pydantic types. Imported only for tools that have such arguments: importing pydantic takes about 100 ms."""

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.parameter import Issue

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def find_adapter(annotation: Any) -> "TypeAdapter[Any] | None":
    """The pydantic adapter of a type; None when pydantic does not support the type."""
    try:
        return _cached_adapter(annotation)
    except TypeError:  # the annotation is not hashable
        return _make_adapter(annotation)


def validate(annotation: Any, name: str, raw: bytes) -> tuple[Any, list[Issue]]:
    """Decode and validate an argument. Return its value and no issues, or None and the issues."""
    from pydantic import ValidationError

    adapter = find_adapter(annotation)
    assert adapter is not None
    try:
        return adapter.validate_json(raw), []
    except ValidationError as error:
        return None, [
            {
                "field": ".".join((name, *map(str, problem["loc"]))),
                "code": problem["type"],
                "message": problem["msg"],
            }
            for problem in error.errors(include_url=False, include_context=False, include_input=False)
        ]


def json_schema(annotation: Any) -> tuple[JsonObject, JsonObject]:
    """The JSON Schema of a type without its `$defs`, and the `$defs`."""
    adapter = find_adapter(annotation)
    assert adapter is not None
    schema = cast("dict[str, Json]", adapter.json_schema(ref_template="#/$defs/{model}"))
    definitions = schema.pop("$defs", {})
    return schema, definitions if isinstance(definitions, dict) else {}


@cache
def _cached_adapter(annotation: Any) -> "TypeAdapter[Any] | None":
    return _make_adapter(annotation)


def _make_adapter(annotation: Any) -> "TypeAdapter[Any] | None":
    from pydantic import PydanticSchemaGenerationError, TypeAdapter

    try:
        return TypeAdapter(annotation)
    except PydanticSchemaGenerationError:
        return None
