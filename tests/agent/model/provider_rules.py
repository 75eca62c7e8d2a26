"""The rules of providers for conversations, which they reject with HTTP 400 otherwise. The scripted endpoint does not check them."""

import re
from collections.abc import Iterator, Sequence

from holdfast.model.json import Json, JsonObject
from holdfast.testing.scripted_model import ModelRequest
from holdfast.testing.scripted_model.request import WireFormat

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANTHROPIC_ID = re.compile(r"[A-Za-z0-9_-]+")
_CHAT_FIELDS = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning"}


def broken_rules(request: ModelRequest) -> Sequence[str]:
    """The rules of the request's format that its conversation breaks."""
    calls = [call for message in request.messages for call in message.calls]
    results = [message.call_id for message in request.messages if message.role == "tool"]
    found = [f"the name {name!r}" for _, name in calls if not _NAME.fullmatch(name)]
    if [call_id for call_id, _ in calls] != results:
        found.append(f"the results {results} do not answer the calls {calls}")
    match request.format:
        case WireFormat.ANTHROPIC:
            found += _anthropic(request, [call_id for call_id, _ in calls])
        case WireFormat.RESPONSES:
            found += _responses(_objects(request.body["input"]))
        case WireFormat.CHAT:
            found += _chat(_objects(request.body["messages"]))
    return found


def _anthropic(request: ModelRequest, call_ids: Sequence[str]) -> Iterator[str]:
    yield from (f"the id {call_id!r}" for call_id in call_ids if not _ANTHROPIC_ID.fullmatch(call_id))
    if len({*call_ids}) < len(call_ids):
        yield f"an id is used twice: {call_ids}"
    if call_ids and not request.tools:
        yield "calls without definitions of tools"
    for message in _objects(request.body["messages"]):
        kinds = [block["type"] for block in _objects(message["content"])]
        if message["role"] == "assistant" and (not kinds or kinds[-1] == "thinking"):
            yield f"an answer of {kinds}"
        texts = [block for block in _objects(message["content"]) if block["type"] == "text"]
        texts += [
            text
            for block in _objects(message["content"])
            if block["type"] == "tool_result"
            for text in _objects(block["content"])
            if text["type"] == "text"
        ]
        if not all(str(text["text"]).strip() for text in texts):
            yield "an empty text"
        if "tool_result" in kinds[1:] and kinds.index("tool_result") > 0:
            yield f"results after other blocks: {kinds}"


def _responses(items: Sequence[JsonObject]) -> Iterator[str]:
    for item, following in zip(items, [*items[1:], {}], strict=True):
        is_answer = (
            following.get("type") in ("reasoning", "function_call") or following.get("role") == "assistant"
        )
        if item.get("type") == "reasoning" and not is_answer:
            yield f"reasoning followed by {following}"


def _chat(messages: Sequence[JsonObject]) -> Iterator[str]:
    for message in messages:
        if unknown := message.keys() - _CHAT_FIELDS:
            yield f"the fields {unknown}"


def _objects(value: Json) -> Sequence[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
