"""Describes a tool's arguments as text, from their JSON Schema."""

import json
from collections.abc import Iterator
from itertools import islice

import msgspec

from holdfast.model.json import Json
from holdfast.wire.mcp.tools import Tool

_MAX_LENGTH = 60  # characters of a type, a constraint or a default
_MAX_ARGUMENTS = 200
_MAX_DEPTH = 4  # levels of nested types
_MAX_MEMBERS = 10  # members of an object in an example
_MAX_VALUES = 100  # values in an example
_MAX_GIVEN = 500  # characters of arguments that are repeated as JSON
_CONSTRAINTS = {
    "minimum": "from {}",
    "maximum": "up to {}",
    "minLength": "at least {} characters",
    "maxLength": "up to {} characters",
    "minItems": "at least {} items",
    "maxItems": "up to {} items",
    "pattern": "matching {}",
    "format": "{}",
}


class _Schema(msgspec.Struct):
    """The parts of an input schema that the descriptions use."""

    properties: dict[str, Json] = {}
    required: list[str] = []
    definitions: dict[str, Json] = msgspec.field(default={}, name="$defs")


def required_arguments(tool: Tool) -> list[str]:
    """Return the names of the required arguments."""
    return _parse_schema(tool).required


def describe_arguments(tool: Tool) -> str:
    """Return a line for each argument: its name, type, constraints and description."""
    schema = _parse_schema(tool)
    if not schema.properties:
        return "It has no arguments.\n"
    required = frozenset(schema.required)
    lines = (
        f"- {name} ({', '.join(_describe_argument(value, schema.definitions, is_required=name in required))}){_description(value)}\n"
        for name, value in islice(schema.properties.items(), _MAX_ARGUMENTS)
    )
    more = len(schema.properties) - _MAX_ARGUMENTS
    return "".join(lines) + (f"- … and {more} more\n" if more > 0 else "")


def example_arguments(tool: Tool) -> str:
    """Return a JSON object to fill in: the required arguments, with placeholders that name the types."""
    schema = _parse_schema(tool)
    example = _Example(schema.definitions)
    filled = {
        name: example.make(schema.properties.get(name), depth=0) for name in schema.required[:_MAX_ARGUMENTS]
    }
    return json.dumps(filled, ensure_ascii=False)


def example_object(given: str) -> str:
    """Show how to write `n=3 path=a.txt` as a JSON object: `{"n": 3, "path": "a.txt"}`. For other text, return a general example."""
    pairs = [word.partition("=") for word in given.split()]
    if (
        len(given) > _MAX_GIVEN
        or not pairs
        or not all(name.isidentifier() and equals for name, equals, _ in pairs)
    ):
        return '{"key": "value"}'
    return json.dumps({name: _parse_value(value) for name, _, value in pairs}, ensure_ascii=False)


def describe_json_error(given: str, error: Exception) -> str:
    """Say where the JSON is wrong. Empty for text that does not begin with `{`, because the position would not help."""
    return f": {error}" if given.lstrip().startswith("{") else ""


def _parse_value(text: str) -> Json:
    """Decode a text as JSON. If it is not JSON, return the text itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


class _Example:
    """Makes placeholders for arguments. An object has its required members, and a list one item, until the example has `_MAX_VALUES` values."""

    def __init__(self, definitions: dict[str, Json]) -> None:
        self._definitions = definitions
        self._remaining = _MAX_VALUES

    def make(self, value: Json, *, depth: int) -> Json:
        self._remaining -= 1
        target = _resolve(value, self._definitions)
        if depth < _MAX_DEPTH and self._remaining > 0:
            match target:
                case {"properties": dict() as properties, "required": list() as required}:
                    names = islice((name for name in required if isinstance(name, str)), _MAX_MEMBERS)
                    return {name: self.make(properties.get(name), depth=depth + 1) for name in names}
                case {"type": "object"}:
                    return {}
                case {"type": "array", "items": dict() as item}:
                    return [self.make(item, depth=depth + 1)]
                case {"type": "array"}:
                    return []
                case _:
                    pass
        return f"<{_type_name(value, self._definitions)}>"


def _resolve(value: Json, definitions: dict[str, Json]) -> Json:
    """Return the schema, or the definition that it refers to."""
    if isinstance(value, dict) and isinstance(reference := value.get("$ref"), str):
        return definitions.get(reference.rpartition("/")[2], value)
    return value


def _parse_schema(tool: Tool) -> _Schema:
    try:
        return msgspec.json.decode(tool.input_schema, type=_Schema)
    except msgspec.MsgspecError:
        return _Schema()


def _describe_argument(value: Json, definitions: dict[str, Json], *, is_required: bool) -> Iterator[str]:
    yield _type_name(value, definitions)
    if is_required:
        yield "required"
    if not isinstance(value, dict):
        return
    for key, words in _CONSTRAINTS.items():
        if isinstance(limit := value.get(key), str | int | float):
            yield words.format(shorten(str(limit), _MAX_LENGTH))
    if "default" in value:
        yield f"default {_short_json(value['default'])}"


def _description(value: Json) -> str:
    text = value.get("description") if isinstance(value, dict) else None
    return f": {' '.join(text.split())}" if isinstance(text, str) and text else ""


def _type_name(value: Json, definitions: dict[str, Json], depth: int = 0) -> str:
    if depth == _MAX_DEPTH or not isinstance(value, dict):
        return "anything"
    match value:
        case {"enum": list() as choices}:
            words = map(_short_json, choices)
        case {"anyOf": list() as several} | {"oneOf": list() as several}:
            words = (_type_name(one, definitions, depth + 1) for one in several)
        case {"type": list() as several}:
            words = map(str, several)
        case {"type": "array", "items": item}:
            words = (f"array of {_type_name(item, definitions, depth + 1)}",)
        case {"$ref": str() as name}:
            target = _resolve(value, definitions)
            is_object = not isinstance(target, dict) or "properties" in target or "$ref" in target
            words = (name.rpartition("/")[2] if is_object else _type_name(target, definitions, depth + 1),)
        case {"type": str() as name}:
            words = (name,)
        case _:
            words = ("anything",)
    return shorten(" or ".join(dict.fromkeys(words)), _MAX_LENGTH)


def _short_json(value: Json) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), _MAX_LENGTH)


def shorten(text: str, length: int) -> str:
    """Return the text, or its beginning and an ellipsis (…) if it has more than `length` characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
