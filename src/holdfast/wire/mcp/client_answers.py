"""Answers of an application to the requests of a server: what its functions return, as the result that MCP defines."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, cast

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.call_arguments import Arguments, encode_arguments

_SAMPLED: JsonObject = {"role": "assistant", "model": "application"}
_FIELDS = "a dict with the fields, True, or None to decline"
_SAMPLE = 'a string, or the result of sampling/createMessage: {"content": {"type": "text", "text": "…"}}'


def elicitation_result(answer: object, params: JsonObject) -> JsonObject:
    """The result of `elicitation/create`, from the fields of the form, the value of its only field, True, None or the whole result."""
    if answer is None or answer is False:
        return {"action": "decline"}
    names = _field_names(params)
    if answer is True and len(names) != 1:
        return {"action": "accept"}
    is_value = len(names) == 1 and isinstance(answer, str | int | float | list)
    given: object = {names[0]: cast("Any", answer)} if is_value else cast("object", answer)
    fields = _as_object("elicit", _FIELDS, given)
    return fields if _is_whole_result(fields, names) else {"action": "accept", "content": fields}


def sampling_result(answer: object) -> JsonObject:
    """The result of `sampling/createMessage`, from the text of the model or the whole result."""
    if isinstance(answer, str):
        text: JsonObject = {"type": "text", "text": answer}
        return {**_SAMPLED, "content": text, "stopReason": "endTurn"}
    sampled = _as_object("sample", _SAMPLE, answer)
    if not isinstance(sampled.get("content"), dict | list):
        raise wrong_answer("sample", _SAMPLE, "an object without `content`")
    return {**_SAMPLED, **sampled}


def wrong_answer(name: str, expected: str, got: str) -> HoldfastError:
    """The error for a function that returned something else."""
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


def _is_whole_result(fields: JsonObject, names: list[str]) -> bool:
    """Whether this is the result of `elicitation/create`, as handlers of MCP clients return it, and not the fields of the form."""
    if "action" in names:
        return False
    is_answered = fields.get("action") in ("accept", "decline", "cancel")
    return is_answered and fields.keys() <= {"action", "content", "_meta"}
