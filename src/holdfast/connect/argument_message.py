"""Says in plain words why arguments do not fit a tool's schema.

The values of arguments are not repeated, because they may be secret. The server chooses the texts in the schema, and the
caller the names of arguments, so both are shortened and quoted, on one line.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import IT_IS_REQUIRED
from holdfast.model.json import Json
from holdfast.model.visible_text import quote_line

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

MAX_ERRORS = 3
_MAX_LENGTH = 600  # characters of all errors together
_MAX_NAME = 60  # characters of a name or value
_MAX_NAMES = 5  # names or values in a list
_MAX_PATH = 8  # parts of a path
_TYPE_NAMES = {
    "array": "an array",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "object": "an object",
    "string": "a string",
    "null": "null",
}
_LIMIT_MESSAGES = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "additionalItems": "must have at most {} items",
    "minProperties": "must have at least {} members",
    "maxProperties": "must have at most {} members",
}
_OTHER_MESSAGES = {
    "additionalProperties": "must be empty",
    "contains": "has too few or too many items of a certain kind",
    "falseSchema": "is not allowed",
    "items": "is not allowed",
    "not": "is of a kind that is not allowed",
    "propertyNames": "has a member with a name that is not allowed",
    "unevaluatedItems": "has too many items",
    "uniqueItems": "must not have equal items",
}


def describe_errors(errors: "Iterable[ValidationError]", arguments: Json) -> str:
    """One sentence for each error: the place, and what the schema expects there."""
    text = " ".join(f"{_describe_error(error, arguments)}." for error in errors)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


def _describe_error(error: "ValidationError", arguments: Json) -> str:
    path = error.instance_path
    keyword, facts = error.kind.name, error.kind.as_dict()
    where = _describe_path(path)
    if keyword == "required":
        return f"{_quote_name(facts.get('property'))}{f' in {where}' if path else ''}: {IT_IS_REQUIRED}"
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        names: list[str] = facts.get("unexpected", [])
        verb = "is" if len(names) == 1 else "are"
        return f"{_join(map(_quote_name, names), len(names), 'and')} {verb} not known{f' in {where}' if path else ''}"
    if keyword == "falseSchema" and error.schema_path[-2:-1] != ["properties"]:
        # The schema is the value `false` of a keyword, as in `"items": false`: name that keyword.
        keyword = str(error.schema_path[-1]) if error.schema_path else keyword
    return (
        f"{where or 'The object with the arguments'} {_describe_expectation(keyword, facts, path, arguments)}"
    )


def _describe_expectation(
    keyword: str, facts: dict[str, Any], path: Sequence[str | int], arguments: Json
) -> str:
    match keyword:
        case "type":
            return f"must be {_describe_types(facts['types'])}, not {_describe_type_at(arguments, path)}"
        case "enum":
            options = facts["options"]
            return f"must be one of {_join(map(_format_constant, options), len(options), 'or')}"
        case "const":
            return f"must be {_format_constant(facts['expected_value'])}"
        case "pattern":
            return f"must match the pattern {quote_line(str(facts['pattern']), 2 * _MAX_NAME)}"
        case "multipleOf":
            return f"must be a multiple of {_format_number(facts['multiple_of'])}"
        case "anyOf" | "oneOf":
            return _describe_alternatives(facts.get("context"), path, arguments)
        case _ if keyword in _LIMIT_MESSAGES and "limit" in facts:
            text = _LIMIT_MESSAGES[keyword].format(_format_number(facts["limit"]))
            return text.removesuffix("s") if facts["limit"] == 1 else text
        case _:
            return _OTHER_MESSAGES.get(keyword, "does not fit the schema")


def _describe_alternatives(context: Any, path: Sequence[str | int], arguments: Json) -> str:
    """Name the types if the alternatives are only types, as in `string or null`."""
    types: list[str] = []
    alternatives: list[list[ValidationError]] = context or []  # the errors of each alternative
    if not all(alternatives):  # several alternatives of `oneOf` fit
        return "must fit only one of the alternatives in the schema"
    for errors in alternatives:
        if len(errors) != 1 or errors[0].kind.name != "type" or errors[0].instance_path != path:
            return f"must fit one of {len(alternatives)} alternatives in the schema"
        types += errors[0].kind.as_dict()["types"]
    return f"must be {_describe_types(types)}, not {_describe_type_at(arguments, path)}"


def _describe_types(types: Sequence[str]) -> str:
    known = [text for name, text in _TYPE_NAMES.items() if name in types]
    return _join(known, len(known), "or")


def _describe_type_at(arguments: Json, path: Sequence[str | int]) -> str:
    value: Any = arguments
    try:
        for part in path:
            value = value[part]
    except (LookupError, TypeError):
        return "something else"
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a string"
        case float() if not value.is_integer():
            return "a fraction"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"


def _describe_path(path: Sequence[str | int]) -> str:
    """A path such as `“filter.items[3]”`; empty for the arguments as a whole."""
    if not path:
        return ""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part[:_MAX_NAME]}" for part in path[:_MAX_PATH]]
    return quote_line(
        "".join(parts).removeprefix(".") + ("…" if len(path) > _MAX_PATH else ""), _MAX_PATH * _MAX_NAME
    )


def _quote_name(name: Any) -> str:
    return quote_line(str(name), _MAX_NAME)


def _format_constant(value: Any) -> str:
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return quote_line(value, _MAX_NAME)
        case int() | float():
            return _format_number(value)
        case list():
            return "a certain array"
        case _:
            return "a certain object"


def _format_number(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


def _join(names: Iterable[str], count: int, conjunction: str) -> str:
    shown = [name for name, _ in zip(names, range(_MAX_NAMES), strict=False)]
    if count > _MAX_NAMES:
        return f"{', '.join(shown)} {conjunction} {count - _MAX_NAMES} more"
    return f"{', '.join(shown[:-1])} {conjunction} {shown[-1]}" if len(shown) > 1 else "".join(shown)
