"""Prepares a conversation for a model: changes what the provider would reject, and leaves out long results and unsupported images."""

import re
from collections.abc import Sequence
from dataclasses import replace

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model

ELIDE_AT = 0.8
"""When this share of the model's context is used, a request is sent without the long results of earlier calls."""
_ELIDED = "[left out to save space; call the tool again if you need it]"
_KEPT_REQUESTS = 2  # `elide_results` leaves the results in the last requests as they are
_SHORT_RESULT = 500  # characters; shorter results are never left out
_NO_IMAGE = "[attached: image, which this model does not take]"
# All providers accept ids and names of this form. Anthropic rejects other characters, OpenAI also longer ids.
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 64


def fit_provider(messages: Sequence[ModelMessage], model: Model) -> list[ModelMessage]:
    """Return the messages in a form that the model's provider accepts.

    Left out are reasoning of another provider or another API, and reasoning at the end of an answer: the provider would reject them. A call
    from an answer of another provider gets a new id if its id was used before or has characters that this provider may reject.
    """
    fitted: list[ModelMessage] = []
    used: set[str] = set()
    new_ids: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ModelRequest):
            fitted.append(_with_new_ids(message, new_ids) if new_ids else message)
            continue
        parts = [part for part in message.parts if _is_accepted(part, message, model)]
        while parts and isinstance(parts[-1], ThinkingPart):
            parts.pop()
        calls = [part for part in parts if isinstance(part, ToolCallPart)]
        is_foreign = message.provider_name != model.system
        new_ids = _new_ids(calls, used) if is_foreign else {}
        used.update(new_ids.get(call.tool_call_id, call.tool_call_id) for call in calls)
        if calls:
            parts = [_fit_call(part, new_ids) if isinstance(part, ToolCallPart) else part for part in parts]
        if parts:
            fitted.append(replace(message, parts=parts) if parts != message.parts else message)
    return fitted


def _is_accepted(part: ModelResponsePart, message: ModelResponse, model: Model) -> bool:
    if not isinstance(part, ThinkingPart):
        return True
    if message.provider_name != model.system:
        return False
    # One provider can have both APIs. They are told apart by the name of the class, because its module is imported only if it is used.
    api = type(model).__name__
    if api.endswith("ResponsesModel"):
        encrypted = model.profile.get("openai_supports_encrypted_reasoning_content") is True
        return encrypted and bool(part.signature)
    return not (api.endswith("ChatModel") and part.signature)


def _new_ids(calls: Sequence[ToolCallPart], used: set[str]) -> dict[str, str]:
    """Return new ids for those calls of an answer whose ids the provider may reject."""
    new: dict[str, str] = {}
    taken = {*used, *(call.tool_call_id for call in calls)}
    for call in calls:
        call_id = call.tool_call_id
        if call_id in used or not _ACCEPTED_ID.fullmatch(call_id):
            number = len(taken)
            while f"call_{number}" in taken:
                number += 1
            new[call_id] = f"call_{number}"
            taken.add(new[call_id])
    return new


def _fit_call(call: ToolCallPart, new_ids: dict[str, str]) -> ToolCallPart:
    name = _NOT_IN_NAMES.sub("_", call.tool_name)[:_MAX_NAME] or "_"
    call_id = new_ids.get(call.tool_call_id, call.tool_call_id)
    if (name, call_id) == (call.tool_name, call.tool_call_id):
        return call
    return replace(call, tool_name=name, tool_call_id=call_id)


def _with_new_ids(message: ModelRequest, new_ids: dict[str, str]) -> ModelRequest:
    return replace(
        message,
        parts=[
            replace(part, tool_call_id=new_ids.get(part.tool_call_id, part.tool_call_id))
            if isinstance(part, ToolReturnPart)
            else part
            for part in message.parts
        ],
    )


def has_images(messages: Sequence[ModelMessage]) -> bool:
    """Return whether a prompt or a result has an image."""
    return any(_is_image(part) for message in messages for part in message.parts)


def without_images(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages with a note in place of each image."""
    return [
        replace(
            message,
            parts=[
                replace(part, content=_NO_IMAGE)
                if isinstance(part, UserPromptPart) and _is_image(part)
                else part
                for part in message.parts
            ],
        )
        if isinstance(message, ModelRequest)
        else message
        for message in messages
    ]


def _is_image(part: ModelRequestPart | ModelResponsePart) -> bool:
    return isinstance(part, UserPromptPart) and not isinstance(part.content, str)


def elide_results(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages with a note in place of each long result of an earlier call, and of each image of an earlier result."""
    requests = [index for index, message in enumerate(messages) if isinstance(message, ModelRequest)]
    kept = {*requests[-_KEPT_REQUESTS:]}
    return [
        replace(message, parts=[*map(_elide, message.parts)])
        if isinstance(message, ModelRequest) and index not in kept and _has_results(message)
        else message
        for index, message in enumerate(messages)
    ]


def _has_results(message: ModelRequest) -> bool:
    return any(isinstance(part, ToolReturnPart) for part in message.parts)


def _elide(part: ModelRequestPart) -> ModelRequestPart:
    match part:
        case ToolReturnPart() if len(str(part.content)) > _SHORT_RESULT:
            return replace(part, content=_ELIDED)
        case UserPromptPart() if _is_image(part):
            return replace(part, content=_ELIDED)
        case _:
            return part
