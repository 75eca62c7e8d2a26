"""Arguments and results with pydantic types. Imported only for tools that use such types, because pydantic is slow to import."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Annotated, Any, NotRequired, cast

from pydantic import Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit, PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict

from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.errors import ResultMismatchError
from holdfast.toolkit.paging import CURSOR_HELP, Page
from holdfast.toolkit.parameter import Issue
from holdfast.toolkit.schema_details import add_descriptions
from holdfast.toolkit.type_support import UnsupportedTypeError

_MAX_ISSUES = 32
_LIMITS = frozenset(
    {
        "gt",
        "ge",
        "lt",
        "le",
        "multiple_of",
        "min_length",
        "max_length",
        "pattern",
        "max_digits",
        "decimal_places",
    }
)
"""The keys of pydantic's core schema that limit a value."""
_LIMIT_ERRORS = frozenset(
    {
        *("greater_than", "greater_than_equal", "less_than", "less_than_equal", "multiple_of"),
        *("string_too_short", "string_too_long", "string_pattern_mismatch", "too_short", "too_long"),
        *("bytes_too_short", "bytes_too_long"),
        *("decimal_max_digits", "decimal_max_places", "decimal_whole_digits"),
        *("predicate_failed", "not_operation_failed"),
    }
)
"""The errors of pydantic for a value outside of its limits."""


def check_support(annotation: Any) -> None:
    """Raise `UnsupportedTypeError` unless pydantic supports a type and can make its JSON Schema."""
    try:
        json_schema(annotation)
    except PydanticOmit:
        raise UnsupportedTypeError(
            "it is left out of the JSON Schema, so no caller would know of it"
        ) from None
    except (PydanticUserError, PydanticSerializationError) as error:
        raise UnsupportedTypeError(_first_sentence(error)) from None
    if any(part.get("type") == "is-subclass" for part in _core_schemas(annotation)):
        raise UnsupportedTypeError("its value is a class, which JSON does not have")


def validate(annotation: Any, name: str, raw: bytes) -> tuple[Any, list[Issue]]:
    """Decode and validate an argument. Return its value and no issues, or None and the issues."""
    try:
        return _adapter(annotation).validate_json(raw), []
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [
            {
                "field": ".".join((name, *map(str, problem["loc"]))),
                "code": problem["type"],
                "message": problem["msg"],
            }
            for problem in problems[:_MAX_ISSUES]
        ]


def page_type(item: Any) -> Any:
    """A type for pydantic, which does not know `Page`, with the members of a page of these items."""
    members = {
        "items": list[item],
        "next_cursor": NotRequired[Annotated[str, Field(description=CURSOR_HELP)]],
        "total": NotRequired[int],
    }
    return TypedDict("Page", members)  # pyright: ignore


def dump(annotation: Any, value: object) -> object:
    """The JSON value of a returned value. A value of another type is converted, or `ResultMismatchError` is raised."""
    if isinstance(value, Page):
        value = _page_members(cast("Page[Any]", value))
    adapter = _adapter(annotation)
    try:
        return adapter.dump_python(value, mode="json", warnings="error")
    except PydanticSerializationError:
        pass
    try:
        return adapter.dump_python(adapter.validate_python(value), mode="json", warnings="error")
    except (PydanticSerializationError, ValidationError) as error:
        raise ResultMismatchError(f"The result does not match the declared type: {error}") from None


def make_limit_check(annotation: Any) -> Callable[[bytes], None] | None:
    """A function that raises `ResultMismatchError` if the JSON of a result is outside of the limits of its type.

    pydantic checks limits only when it reads a value. None if the type has no limits, or has functions of the author, which
    would run twice.
    """
    parts = list(_core_schemas(annotation))
    if not any(map(_has_limit, parts)) or any(map(_has_own_function, parts)):
        return None
    adapter = _adapter(annotation)

    def check(body: bytes) -> None:
        try:
            adapter.validate_json(body, by_alias=True, by_name=True)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            found = next((problem for problem in problems if problem["type"] in _LIMIT_ERRORS), None)
            if found is not None:
                where = ".".join(map(str, found["loc"]))
                raise ResultMismatchError(
                    f"The result does not match the declared type: {where and f'{where}: '}{found['msg']}."
                ) from None

    return check


def _has_limit(schema: dict[str, Any]) -> bool:
    """Whether a part of a type limits its values: by a key, or by a function of pydantic, as for `Predicate` and unions."""
    is_check = schema.get("type") in ("function-after", "function-wrap")
    return any(key in _LIMITS for key in schema) or (is_check and not _has_own_function(schema))


def _has_own_function(schema: dict[str, Any]) -> bool:
    """Whether a part of a type is a validator or a serializer that the author wrote."""
    if not str(schema.get("type")).startswith("function-"):
        return False
    function = schema.get("function")
    if isinstance(function, dict):
        function = cast("dict[str, Any]", function).get("function")
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return str(getattr(function, "__module__", "")).partition(".")[0] not in ("pydantic", "pydantic_core")


def _page_members(page: Page[Any]) -> dict[str, Any]:
    members: dict[str, Any] = {"items": page.items}
    if page.next_cursor:
        members["next_cursor"] = page.next_cursor
    if page.total is not None:
        members["total"] = page.total
    return members


def dump_default(annotation: Any, value: object) -> Json:
    """The JSON value of a default; raises `UnsupportedTypeError` if it does not have the type of its parameter."""
    try:
        return cast("Json", _adapter(annotation).dump_python(value, mode="json", warnings="error"))
    except PydanticSerializationError:
        raise UnsupportedTypeError("is not of the type of its parameter") from None


def is_json(annotation: Any, value: object) -> bool:
    """Whether a value can be sent as JSON, if need be with the serializer of its type."""
    with suppress(PydanticSerializationError):
        to_jsonable_python(value)
        return True
    with suppress(PydanticSerializationError, PydanticUserError):
        _adapter(annotation).dump_python(value, mode="json", warnings="none")
        return True
    return False


def json_schema(annotation: Any) -> tuple[JsonObject, JsonObject]:
    """The JSON Schema of an argument without its `$defs`, and the `$defs`."""
    return _split_schema(_adapter(annotation).json_schema(schema_generator=_ShortSchema))


def output_schema(annotation: Any) -> tuple[JsonObject, JsonObject]:
    """The JSON Schema of a result without its `$defs`, and the `$defs`."""
    return _split_schema(
        _adapter(annotation).json_schema(by_alias=False, mode="serialization", schema_generator=_OutputSchema)
    )


def patterns(annotation: Any) -> Iterator[tuple[str, int | None]]:
    """The patterns inside a type, each with the maximum length of the text that it is matched against."""
    for part in _core_schemas(annotation):
        if part.get("type") == "str" and "pattern" in part:
            pattern: str | re.Pattern[str] = part["pattern"]
            yield pattern if isinstance(pattern, str) else pattern.pattern, part.get("max_length")


class _ShortSchema(GenerateJsonSchema):
    """Leaves out the titles that pydantic makes from names, and makes descriptions of the strings in annotations, as for msgspec."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Warn of nothing. The toolkit refuses a default that is not JSON in arguments; in results, it does not matter."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> Any:
        return _edit_class_schema(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> Any:
        return _edit_class_schema(super().dataclass_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: Any) -> Any:
        return _edit_class_schema(super().typed_dict_schema(schema), schema.get("cls"))


class _OutputSchema(_ShortSchema):
    """Uses the aliases of a model only if the model is serialised with them."""

    def model_schema(self, schema: Any) -> Any:
        before = self.by_alias
        self.by_alias = bool(schema["cls"].model_config.get("serialize_by_alias"))
        try:
            return super().model_schema(schema)
        finally:
            self.by_alias = before


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return _cached_adapter(annotation)
    except TypeError:  # the annotation is not hashable
        return TypeAdapter(annotation)


@cache
def _cached_adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _edit_class_schema(schema: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Leave out the name of the class, and add the descriptions in its annotations. pydantic reads only those in a `Field`."""
    fields: dict[str, Any] = getattr(kind, "__pydantic_fields__", {})
    add_descriptions(
        schema.get("properties"), kind, lambda name: getattr(fields.get(name), "alias", None) or name
    )
    if schema.get("title") == getattr(kind, "__name__", None):
        schema.pop("title", None)
    return schema


def _split_schema(schema: dict[str, Any]) -> tuple[JsonObject, JsonObject]:
    """The schema without its `$defs`, and the `$defs`."""
    definitions = schema.pop("$defs", {})
    return cast("JsonObject", schema), cast("JsonObject", definitions)


def _core_schemas(annotation: Any) -> Iterator[dict[str, Any]]:
    """All parts of pydantic's core schema of a type."""
    waiting: list[Any] = [_adapter(annotation).core_schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            schema = cast("dict[str, Any]", part)
            yield schema
            waiting += schema.values()
        elif isinstance(part, list | tuple):
            waiting += cast("list[Any]", part)


def _first_sentence(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
