"""A door made of functions, so that a Python application can answer the session's questions itself."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, TypeAlias, cast

import msgspec

from holdfast.model import codes
from holdfast.model.door import Door, DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.session.arguments import Arguments, encode_arguments
from holdfast.session.callbacks import check_callback, run_callback

log = logging.getLogger(__name__)

_SAMPLED: JsonObject = {"role": "assistant", "model": "application"}

Ask: TypeAlias = Callable[[PermissionQuestion], "Awaitable[Decision | bool] | Decision | bool"]
"""Whether a call may run: True, False, or a `Decision`."""
Elicit: TypeAlias = Callable[[JsonObject], "Awaitable[Arguments | bool | None] | Arguments | bool | None"]
"""Answers a server's question: the fields of the form, True to accept a question without fields, None to decline.

The fields are a mapping, a dataclass or a pydantic model. The whole result of `elicitation/create`, with its `action`, is also taken.
"""
Sample: TypeAlias = Callable[[JsonObject], "Awaitable[str | Arguments] | str | Arguments"]
"""Answers a server's sampling request: the text of the model, or the whole result of `sampling/createMessage`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackDoor(Door):
    """Answers questions with functions. It supports what it has functions for."""

    ask: Ask | None = None
    elicit_with: Elicit | None = None
    sample_with: Sample | None = None

    def __post_init__(self) -> None:
        for name, function in (("ask", self.ask), ("elicit", self.elicit_with), ("sample", self.sample_with)):
            if function is not None:
                check_callback(name, function)

    @property
    def has_functions(self) -> bool:
        """Whether it can answer anything."""
        return self.capabilities != DoorCapabilities()

    @property
    def capabilities(self) -> DoorCapabilities:
        return DoorCapabilities(
            permission=self.ask is not None,
            elicitation=self.elicit_with is not None,
            elicitation_url=self.elicit_with is not None,
            sampling=self.sample_with is not None,
        )

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        assert self.ask is not None
        answer = await _call("ask", self.ask, question)
        if isinstance(answer, bool):
            return Decision.ALLOW_ONCE if answer else Decision.REJECT
        try:
            return Decision(answer)
        except ValueError:
            allowed = ", ".join(Decision)
            got = f"a value of the type {type(answer).__name__}"
            raise _wrong_answer("ask", f"True, False or one of {allowed}", got) from None

    async def elicit(self, params: JsonObject) -> JsonObject:
        assert self.elicit_with is not None
        answer = await _call("elicit", self.elicit_with, params)
        if answer is None or answer is False:
            return {"action": "decline"}
        if answer is True:
            return {"action": "accept"}
        fields = _as_object("elicit", "a dict with the fields, True, or None to decline", answer)
        return fields if _is_whole_result(fields, params) else {"action": "accept", "content": fields}

    async def sample(self, params: JsonObject) -> JsonObject:
        assert self.sample_with is not None
        answer = await _call("sample", self.sample_with, params)
        if isinstance(answer, str):
            text: JsonObject = {"type": "text", "text": answer}
            return {**_SAMPLED, "content": text, "stopReason": "endTurn"}
        expected = (
            'a string, or the result of sampling/createMessage: {"content": {"type": "text", "text": "…"}}'
        )
        sampled = _as_object("sample", expected, answer)
        if not isinstance(sampled.get("content"), dict | list):
            raise _wrong_answer("sample", expected, "an object without `content`")
        return {**_SAMPLED, **sampled}

    async def read_text(self, path: str) -> str:
        raise HoldfastError(
            codes.UNSUPPORTED_BY_CLIENT, "This application does not open files for the session."
        )

    async def write_text(self, path: str, text: str) -> None:
        raise HoldfastError(
            codes.UNSUPPORTED_BY_CLIENT, "This application does not open files for the session."
        )


async def _call(name: str, function: Callable[[Any], Any], argument: object) -> Any:
    """Call the application's function. If it raises, the question has no answer, and the log has the traceback."""
    try:
        return await run_callback(function, argument)
    except HoldfastError:
        raise
    except Exception as error:
        log.exception("a callback failed: %s", name, extra={"callback": name})
        raise HoldfastError(
            codes.NO_ANSWER,
            f"The application's function `{name}` raised {type(error).__name__}; the log has the traceback.",
            function=name,
        ) from None


def _as_object(name: str, expected: str, answer: object) -> JsonObject:
    """What the function returned, as a JSON object. Of a dataclass or a model, members that are None are left out."""
    kind, is_mapping = type(answer), isinstance(answer, Mapping)
    if not (is_mapping or is_dataclass(kind) or hasattr(kind, "model_dump")):
        raise _wrong_answer(name, expected, f"a value of the type {kind.__name__}")
    try:
        members: JsonObject = msgspec.json.decode(encode_arguments(cast("Arguments", answer)))
    except HoldfastError:
        raise _wrong_answer(name, expected, "something that is not JSON") from None
    return members if is_mapping else {k: v for k, v in members.items() if v is not None}


def _is_whole_result(fields: JsonObject, params: JsonObject) -> bool:
    """Whether this is the result of `elicitation/create`, as handlers of MCP clients return it, and not the fields of the form."""
    schema = params.get("requestedSchema")
    asked = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(asked, dict) and "action" in asked:
        return False
    is_answered = fields.get("action") in ("accept", "decline", "cancel")
    return is_answered and fields.keys() <= {"action", "content", "_meta"}


def _wrong_answer(name: str, expected: str, got: str) -> HoldfastError:
    return HoldfastError(codes.BAD_ARGUMENT, f"`{name}` must return {expected}, not {got}.", function=name)
