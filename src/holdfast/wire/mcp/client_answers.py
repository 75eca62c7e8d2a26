"""Convert what an application's functions for elicitation and sampling return into the results that MCP defines."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, cast

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.call_arguments import Arguments, encode_arguments

_SAMPLING_DEFAULTS: JsonObject = {"role": "assistant", "model": "application"}
# What the functions must return, for error messages.
_ELICIT_RETURNS = "a dict with the fields, True, or None to decline"
_SAMPLE_RETURNS = (
    'a string, or the result of sampling/createMessage: {"content": {"type": "text", "text": "…"}}'
)


def elicitation_result(answer: object, params: JsonObject) -> JsonObject:
    """The result of `elicitation/create` for an application's answer.

    The request (`params`) asks the user to fill in a form, or to open a web page. The answer may be a dict of the form's fields, the value
    of its only field, or the whole result. None and False decline. True agrees to open the page; it accepts a form without filling
    it in, unless the form has one field.
    """
    if answer is None or answer is False:
        return {"action": "decline"}
    names = _field_names(params)
    if answer is True and len(names) != 1:
        return {"action": "accept"}
    is_only_value = len(names) == 1 and isinstance(answer, str | int | float | list)
    fields: object = {names[0]: cast("Any", answer)} if is_only_value else cast("object", answer)
    members = _as_object("elicit", _ELICIT_RETURNS, fields)
    return members if _is_whole_result(members, names) else {"action": "accept", "content": members}


def sampling_result(answer: object) -> JsonObject:
    """The result of `sampling/createMessage`. The answer may be the text of the model, or the whole result."""
    if isinstance(answer, str):
        text: JsonObject = {"type": "text", "text": answer}
        return {**_SAMPLING_DEFAULTS, "content": text, "stopReason": "endTurn"}
    sampled = _as_object("sample", _SAMPLE_RETURNS, answer)
    if not isinstance(sampled.get("content"), dict | list):
        raise wrong_answer("sample", _SAMPLE_RETURNS, "an object without `content`")
    return {**_SAMPLING_DEFAULTS, **sampled}


def wrong_answer(name: str, expected: str, got: str) -> HoldfastError:
    """The error for an application's function that returned `got` and not what is `expected`."""
    return HoldfastError(codes.BAD_ARGUMENT, f"`{name}` must return {expected}, not {got}.", function=name)


def _as_object(name: str, expected: str, answer: object) -> JsonObject:
    """What the function returned, as a JSON object. Members of a dataclass or a model that are None are left out."""
    kind, is_mapping = type(answer), isinstance(answer, Mapping)
    if not (is_mapping or is_dataclass(kind) or hasattr(kind, "model_dump")):
        raise wrong_answer(name, expected, f"a value of the type {kind.__name__}")
    try:
        members: JsonObject = msgspec.json.decode(encode_arguments(cast("Arguments", answer)))
    except HoldfastError:
        raise wrong_answer(name, expected, "something that is not JSON") from None
    return members if is_mapping else {k: v for k, v in members.items() if v is not None}


def _field_names(params: JsonObject) -> list[str]:
    """The fields of the form; none if the server asks the user to open a web page instead."""
    schema = params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    return list(fields) if isinstance(fields, dict) else []


def _is_whole_result(members: JsonObject, names: list[str]) -> bool:
    """Whether these are the members of a result of `elicitation/create`, and not the fields of the form (`names`)."""
    if "action" in names:
        return False
    is_answered = members.get("action") in ("accept", "decline", "cancel")
    return is_answered and members.keys() <= {"action", "content", "_meta"}
