"""A tool's arguments in words, as its schema has them."""

import json
from collections.abc import Iterator

import msgspec

from holdfast.model.json import Json
from holdfast.wire.mcp.tools import Tool

_SHORT = 60
_DEEPEST = 4
_MARKS = {
    "minimum": "from {}",
    "maximum": "up to {}",
    "minLength": "at least {} characters",
    "maxLength": "up to {} characters",
    "minItems": "at least {} items",
    "maxItems": "up to {} items",
    "pattern": "like {}",
    "format": "{}",
}


class _Schema(msgspec.Struct):
    """What is read of it; the rest is for programs."""

    properties: dict[str, Json] = {}
    required: list[str] = []


def required(tool: Tool) -> list[str]:
    """The arguments that it does not do without."""
    return _schema(tool).required


def described(tool: Tool) -> str:
    """Every argument on a line of its own: its name, what it is, and what it is for."""
    schema = _schema(tool)
    if not schema.properties:
        return "It names no arguments.\n"
    return "".join(
        f"- {name} ({', '.join(_marks(value, needed=name in schema.required))}){_about(value)}\n"
        for name, value in schema.properties.items()
    )


def example(tool: Tool) -> str:
    """JSON to fill in: what is required, by what it is."""
    schema = _schema(tool)
    filled = {name: f"<{_kind(schema.properties.get(name))}>" for name in schema.required}
    return json.dumps(filled, ensure_ascii=False)


def _schema(tool: Tool) -> _Schema:
    try:
        return msgspec.json.decode(tool.input_schema, type=_Schema)
    except msgspec.MsgspecError:  # whatever it is, there is nothing in it to be shown
        return _Schema()


def _marks(value: Json, *, needed: bool) -> Iterator[str]:
    yield _kind(value)
    if needed:
        yield "required"
    if not isinstance(value, dict):
        return
    for key, words in _MARKS.items():
        if isinstance(mark := value.get(key), str | int | float):
            yield words.format(_short(str(mark)))
    if "default" in value:
        yield f"otherwise {_written(value['default'])}"


def _about(value: Json) -> str:
    about = value.get("description") if isinstance(value, dict) else None
    return f": {' '.join(about.split())}" if isinstance(about, str) and about else ""


def _kind(value: Json, depth: int = 0) -> str:
    if depth == _DEEPEST or not isinstance(value, dict):
        return "anything"
    match value:
        case {"enum": list() as choices}:
            words = map(_written, choices)
        case {"anyOf": list() as several} | {"oneOf": list() as several}:
            words = (_kind(one, depth + 1) for one in several)
        case {"type": list() as several}:
            words = map(str, several)
        case {"type": "array", "items": item}:
            words = (f"array of {_kind(item, depth + 1)}",)
        case {"type": str() as name} | {"$ref": str() as name}:
            words = (name.rpartition("/")[2],)
        case _:
            words = ("anything",)
    return _short(" or ".join(dict.fromkeys(words)))


def _written(value: Json) -> str:
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"
