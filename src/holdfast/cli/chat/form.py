"""Asks for the fields of a form, one after another: the arguments of a call, or the answers that a server asked for."""

import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from holdfast.model.errors import IT_IS_REQUIRED
from holdfast.model.json import Json, JsonObject

_NUMBERS = ("integer", "number")
# For each keyword of JSON Schema: the types that it applies to, its description, and the check of (limit, value).
_LIMITS: tuple[tuple[str, tuple[str, ...], str, Callable[[Any, Any], bool]], ...] = (
    ("minimum", _NUMBERS, "at least {}", lambda limit, value: value >= limit),
    ("exclusiveMinimum", _NUMBERS, "more than {}", lambda limit, value: value > limit),
    ("maximum", _NUMBERS, "at most {}", lambda limit, value: value <= limit),
    ("exclusiveMaximum", _NUMBERS, "less than {}", lambda limit, value: value < limit),
    ("minLength", ("string",), "at least {} characters", lambda limit, value: len(value) >= limit),
    ("maxLength", ("string",), "at most {} characters", lambda limit, value: len(value) <= limit),
    ("minItems", ("array",), "at least {} items", lambda limit, value: len(value) >= limit),
    ("maxItems", ("array",), "at most {} items", lambda limit, value: len(value) <= limit),
)
DECLINE = "/decline"
_MAX_SHOWN_CHARACTERS = 300
_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")  # int() refuses more than 4,300 digits
_YES, _NO = ("y", "yes", "true"), ("n", "no", "false")

AskField = Callable[[str], Awaitable[str | None]]
"""Asks a question, and returns the answer; None at the end of the input."""
PrintLine = Callable[[str], None]


class FormDeclinedError(Exception):
    """The user does not want to fill in the form."""


async def fill_in(schema: Mapping[str, Json], ask: AskField, print_line: PrintLine) -> JsonObject:
    """Ask for each property of an object's schema. Raise `FormDeclinedError` at the end of the input, or for `/decline`.

    An empty answer leaves an optional property out, so that its default is used.
    """
    properties, required = schema.get("properties"), schema.get("required")
    values: JsonObject = {}
    for name, field in _as_mapping(properties).items():
        is_required = isinstance(required, list) and name in required
        value = await _ask_field(name, _as_mapping(field), ask, print_line, is_required=is_required)
        if value is not None:
            values[name] = value
    return values


async def _ask_field(
    name: str, field: Mapping[str, Json], ask: AskField, print_line: PrintLine, *, is_required: bool
) -> Json:
    """The value of one property; None if the answer leaves it out."""
    choices = _choices(field)
    for line in _describe(field, choices):
        print_line(f"    {line}")
    is_text = _type(field) == "string" and not choices
    while True:
        answer = await ask(f"  {name} ({_describe_kind(field, choices, is_required=is_required)}): ")
        if answer is None or answer.strip() == DECLINE:
            raise FormDeclinedError
        if not answer.strip() and (not is_required or "default" in field):
            return field.get("default") if is_required else None
        if not answer.strip() and not is_text:  # an empty text is a value
            print_line(f"    {IT_IS_REQUIRED}.")
            continue
        try:
            value = _parse(answer if is_text else answer.strip(), field, choices)
            _check_limits(value, field)
            return value
        except ValueError as error:
            print_line(f"    {error}")


def _describe(field: Mapping[str, Json], choices: Mapping[str, Json]) -> list[str]:
    texts = [text for key in ("title", "description") if isinstance(text := field.get(key), str) and text]
    lines = [line[:_MAX_SHOWN_CHARACTERS] for text in texts for line in text.splitlines()]
    return lines + ([f"one of: {', '.join(choices)}"[:_MAX_SHOWN_CHARACTERS]] if choices else [])


def _describe_kind(field: Mapping[str, Json], choices: Mapping[str, Json], *, is_required: bool) -> str:
    name = "choice" if choices else _type(field)
    words = [{"boolean": "yes or no", "string": "text", "integer": "whole number"}.get(name, name)]
    words += [description for description, _ in _limits(field)]
    if "default" in field:
        words.append(f"default {json.dumps(field['default'], ensure_ascii=False)[:_MAX_SHOWN_CHARACTERS]}")
    elif not is_required:
        words.append("optional")
    return ", ".join(words)


def _parse(answer: str, field: Mapping[str, Json], choices: Mapping[str, Json]) -> Json:
    if choices:
        if _type(field) == "array":
            return [_choose(word.strip(), choices) for word in answer.split(",")]
        return _choose(answer, choices)
    match _type(field):
        case "string":
            return answer
        case "boolean":
            if answer.lower() in (*_YES, *_NO):
                return answer.lower() in _YES
            raise ValueError("Answer yes or no.")
        case "integer":
            if _INTEGER.fullmatch(answer):
                return int(answer)
            raise ValueError("It must be a whole number.")
        case "number":
            try:
                value = float(answer)
            except ValueError:
                raise ValueError("It must be a number.") from None
            if not math.isfinite(value):  # JSON has no such number
                raise ValueError("It must be a number.")
            return value
        case _:
            try:
                return cast("Json", json.loads(answer, parse_constant=_reject_constant))
            except ValueError:
                raise ValueError('It must be JSON, such as ["a", "b"].') from None


def _check_limits(value: Json, field: Mapping[str, Json]) -> None:
    """Raise `ValueError` if a value is outside of the limits of its field. The server would refuse the whole form."""
    for description, is_within in _limits(field):
        try:
            is_allowed = is_within(value)
        except TypeError:  # the limit does not apply to the value, such as null
            continue
        if not is_allowed:
            raise ValueError(f"Allowed: {description}.")


def _limits(field: Mapping[str, Json]) -> list[tuple[str, Callable[[Any], bool]]]:
    """The limits of a number, of a text's length or of the number of items: the description of each, and its check."""
    schema = next((part for part in (field, *_options(field)) if "type" in part), field)
    kind, found = _type(schema), list[tuple[str, Callable[[Any], bool]]]()
    for keyword, kinds, description, is_within in _LIMITS:
        limit = schema.get(keyword)
        if kind in kinds and isinstance(limit, int | float):
            found.append((description.format(limit), partial(is_within, limit)))
    return found


def _options(field: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """The alternatives in `anyOf`, without null."""
    options = field.get("anyOf")
    shown = [_as_mapping(option) for option in options] if isinstance(options, list) else []
    return [option for option in shown if option.get("type") != "null"]


def _choose(answer: str, choices: Mapping[str, Json]) -> Json:
    if answer not in choices:
        raise ValueError(f"It must be one of: {', '.join(choices)}"[:_MAX_SHOWN_CHARACTERS])
    return choices[answer]


def _choices(field: Mapping[str, Json]) -> dict[str, Json]:
    """The values to choose from. The keys are what the user types."""
    items = _as_mapping(field.get("items"))
    found: dict[str, Json] = {}
    for source in (field, items):
        enum = source.get("enum")
        for value in enum if isinstance(enum, list) else ():
            found[str(value)] = value
        for key in ("oneOf", "anyOf"):
            options = source.get(key)
            for option in options if isinstance(options, list) else ():
                if isinstance(option, dict) and "const" in option:
                    found[str(option["const"])] = option["const"]
    return found


def _type(field: Mapping[str, Json]) -> str:
    """The first type of a field that is not null; "JSON" if the schema names no type."""
    kind: Json = field.get("type")
    if isinstance(kind, list):
        kind = next((item for item in kind if item != "null"), "")
    if isinstance(kind, str) and kind:
        return kind
    options = field.get("anyOf")
    named = [_type(_as_mapping(option)) for option in options] if isinstance(options, list) else []
    return next((name for name in named if name not in ("null", "JSON")), "JSON")


def _as_mapping(value: Any) -> Mapping[str, Json]:
    return cast("Mapping[str, Json]", value) if isinstance(value, Mapping) else {}


def _reject_constant(name: str) -> Json:
    """Reject `NaN` and `Infinity`, which are not valid JSON."""
    raise ValueError(name)
