"""Questions to the user (elicitation): the form for a type, and the answer that comes back.

MCP allows only flat forms: each field is a string, a number, a boolean, or one or several choices.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.argument_schema import ArgumentSchema, BadArgumentsError
from holdfast.toolkit.errors import ToolError
from holdfast.toolkit.parameter import Issue, read_parameter
from holdfast.toolkit.type_support import expand_aliases
from holdfast.wire.messages import Raw
from holdfast.wire.strict_json import DECODE_ERRORS

_FIELD = "value"  # the only field of a form that asks for one value
_MAX_DESCRIBED = 5  # more issues are not in the message
_NOT_ALLOWED = "This value is not one of the choices."
_FORMATS = ("email", "uri", "date", "date-time")
_DECIMAL_AS_TEXT = {"type": "string", "format": "decimal"}  # the form asks for a number
_COMMON = ("title", "description", "default")
# By type: the keywords of JSON Schema that MCP allows in a form.
_KEYWORDS: dict[str, tuple[str, ...]] = {
    "string": (*_COMMON, "minLength", "maxLength", "format", "enum", "enumNames", "oneOf"),
    "number": (*_COMMON, "minimum", "maximum"),
    "integer": (*_COMMON, "minimum", "maximum"),
    "boolean": _COMMON,
    "array": (*_COMMON, "minItems", "maxItems", "items"),
}


@dataclass(frozen=True, slots=True)
class Form:
    """The form for a type of answer."""

    schema: JsonObject
    arguments: ArgumentSchema
    is_object: bool
    """Whether the answer is the whole form, and not its only field."""

    def parse(self, content: JsonObject) -> Any:
        """The answer in a form that the user has filled in; raises BAD_ANSWER when it does not match the type."""
        filled: JsonObject = {_FIELD: content} if self.is_object else content
        try:
            return self.arguments.parse(msgspec.json.encode(filled))[_FIELD]
        except (BadArgumentsError, KeyError) as error:
            issues = error.issues if isinstance(error, BadArgumentsError) else []
            if self.is_object:
                issues = [
                    {**issue, "field": str(issue["field"]).removeprefix(_FIELD).removeprefix(".")}
                    for issue in issues
                ]
            raise ToolError(
                codes.BAD_ANSWER,
                f"The answer of the client does not match the question. {_describe(issues)}",
                next_actions=["Answer with the fields of requestedSchema, each with a value of its type."],
                hint="Call again, and answer the question as the message says.",
                issues=cast("list[Json]", issues),
            ) from None


def _describe(issues: list[Issue]) -> str:
    """The first issues as text: the fields, and what is expected in them. Values are left out: they may be secrets."""
    texts = (
        f"{issue['field'] or 'The form'}: {_NOT_ALLOWED if issue['code'] == 'choice' else issue['message']}"
        for issue in issues[:_MAX_DESCRIBED]
    )
    return " ".join(texts) or f"It has no field {_FIELD!r}."


class _Answer(msgspec.Struct):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Json] | None = None


def make_form(kind: Any) -> Form:
    """The form for a type; raises BAD_TOOL when MCP has no form for it."""
    if kind is None:
        raise HoldfastError(
            codes.BAD_TOOL,
            "call.ask needs the type of the answer, such as call.ask(question, bool), or the url of a page.",
            hint="Add the type that the tool expects from the user.",
        )
    if isinstance(kind, str | list | tuple | dict | set):
        raise HoldfastError(
            codes.BAD_TOOL,
            f"call.ask needs the type of the answer, and got {kind!r}.",
            hint='Write choices as Literal["tea", "milk"]; for several of them, list[Literal["tea", "milk"]].',
        )
    kind = expand_aliases(kind)
    try:
        return _cached_form(kind)
    except TypeError:  # the type is not hashable
        return _make_form(kind)


def read_answer(raw: Raw) -> JsonObject:
    """What the user filled in. Raise DECLINED if the user declined or closed the form."""
    try:
        answer = msgspec.json.decode(raw, type=_Answer)
    except DECODE_ERRORS as error:
        raise ToolError(codes.BAD_ANSWER, f"The client sent an invalid answer: {error}.") from None
    if answer.action != "accept":
        how = "declined" if answer.action == "decline" else "closed the question without an answer"
        raise ToolError(codes.DECLINED, f"The user {how}.", action=answer.action)
    return answer.content or {}


@lru_cache(256)
def _cached_form(kind: Any) -> Form:
    return _make_form(kind)


def _make_form(kind: Any) -> Form:
    arguments = ArgumentSchema([read_parameter("call.ask", _FIELD, kind)])
    whole = arguments.json_schema
    definitions = whole.get("$defs", {})
    properties = whole["properties"]
    assert isinstance(properties, dict)
    assert isinstance(definitions, dict)
    answer = _simplify(properties[_FIELD], definitions)
    if answer.get("type") != "object":
        schema: JsonObject = {
            "type": "object",
            "properties": {_FIELD: _form_field(_FIELD, answer, definitions)},
            "required": [_FIELD],
        }
        return Form(schema, arguments, is_object=False)
    fields = answer.get("properties")
    if not isinstance(fields, dict):
        raise _no_form("an object without named fields")
    schema = {
        "type": "object",
        "properties": {
            name: _form_field(name, _simplify(field, definitions), definitions)
            for name, field in fields.items()
        },
    }
    if answer.get("required"):
        schema["required"] = answer["required"]
    return Form(schema, arguments, is_object=True)


def _simplify(schema: Json, definitions: JsonObject) -> JsonObject:
    """Replace a reference by its target, and `X | None` by `X`: a field that may be left out is not required."""
    if not isinstance(schema, dict):
        raise _no_form("a field of any type")
    others = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf", "allOf")}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return {**_simplify(definitions[reference.rpartition("/")[2]], definitions), **others}
    choices = schema.get("anyOf") or schema.get("allOf")
    if isinstance(choices, list):
        real = [choice for choice in choices if choice not in ({"type": "null"}, _DECIMAL_AS_TEXT)]
        if len(real) == 1:
            return {**_simplify(real[0], definitions), **others}
    if "const" in schema:
        return {
            "type": "string",
            "enum": [schema["const"]],
            **{key: others[key] for key in others if key in _COMMON},
        }
    return schema


def _form_field(name: str, field: JsonObject, definitions: JsonObject) -> JsonObject:
    """The field with only the keywords that MCP allows in forms. `Form.parse` checks the answer against the whole type."""
    kind = field.get("type")
    if not isinstance(kind, str) or kind not in _KEYWORDS:
        raise _no_form(f"the field {name!r} of this type")
    shown: JsonObject = {"type": kind}
    shown |= {key: field[key] for key in _KEYWORDS[kind] if field.get(key) is not None}
    if shown.get("format") not in _FORMATS:
        shown.pop("format", None)
    if kind == "array":
        items = _simplify(field.get("items"), definitions)
        if isinstance(choices := items.get("enum"), list):
            shown["items"] = {"type": "string", "enum": choices}
        elif "anyOf" in items:
            shown["items"] = {"anyOf": items["anyOf"]}
        else:
            raise _no_form(f"the list {name!r}, which is not a list of choices")
    elif "enum" in shown and not all(isinstance(choice, str) for choice in cast("list[Json]", shown["enum"])):
        raise _no_form(f"the choice {name!r}, whose values are not strings")
    return shown


def _no_form(what: str) -> HoldfastError:
    return HoldfastError(
        codes.BAD_TOOL,
        f"call.ask cannot show {what}. MCP's forms are flat: use str, int, float, bool, Literal, a list of Literal, or a "
        "dataclass with such fields.",
        hint="Correct the type that the tool passes to call.ask.",
    )
