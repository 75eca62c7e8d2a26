"""A request to the scripted endpoint, decoded from any of the formats."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import msgspec

from holdfast.model.json import Json, JsonObject


class WireFormat(StrEnum):
    """The format of a request and its answer."""

    CHAT = "chat"
    """OpenAI Chat Completions, which most other providers and local servers also understand."""
    RESPONSES = "responses"
    """OpenAI Responses."""
    ANTHROPIC = "anthropic"
    """Anthropic Messages."""


FORMATS_BY_PATH = {
    "/chat/completions": WireFormat.CHAT,
    "/responses": WireFormat.RESPONSES,
    "/messages": WireFormat.ANTHROPIC,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMessage:
    """One message of a request, in the same shape for all formats."""

    role: str
    """`user`, `assistant`, `tool`, or `thinking`."""
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    """The id and the tool of each call in an assistant's message."""
    call_id: str = ""
    """The id of the call that a tool's message answers."""
    signature: str = ""
    """The signature of reasoning that the client sends back."""


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One request, as the endpoint received it."""

    format: WireFormat
    path: str
    headers: dict[str, str]
    """The names are in lower case."""
    raw: bytes

    @cached_property
    def body(self) -> JsonObject:
        """The decoded body."""
        return msgspec.json.decode(self.raw, type=dict[str, Json])

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def is_streamed(self) -> bool:
        return self.body.get("stream") is True

    @cached_property
    def instructions(self) -> str:
        """The system prompt: all of its texts, joined by line breaks."""
        match self.format:
            case WireFormat.ANTHROPIC:
                texts = [_text(self.body.get("system"))]
            case WireFormat.RESPONSES:
                texts = [_text(self.body.get("instructions")), *_system_texts(_objects(self.body, "input"))]
            case WireFormat.CHAT:
                texts = [*_system_texts(_objects(self.body, "messages"))]
        return "\n".join(filter(None, texts))

    @cached_property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that the model may call."""
        return tuple(
            str(function.get("name", ""))
            for tool in _objects(self.body, "tools")
            for function in (_object(tool.get("function")) or tool,)
        )

    @cached_property
    def messages(self) -> tuple[ModelMessage, ...]:
        """The conversation so far, without the system prompt."""
        match self.format:
            case WireFormat.CHAT:
                return tuple(_chat_messages(_objects(self.body, "messages")))
            case WireFormat.RESPONSES:
                given = self.body.get("input")
                if isinstance(given, str):
                    return (ModelMessage(role="user", text=given),)
                return tuple(_responses_messages(_objects(self.body, "input")))
            case WireFormat.ANTHROPIC:
                return tuple(_anthropic_messages(_objects(self.body, "messages")))

    @property
    def prompt(self) -> str:
        """The text of the user's last message."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def tool_results(self) -> dict[str, str]:
        """The results at the end of the conversation, by call id. Empty if its last message is not a tool's result."""
        results: dict[str, str] = {}
        for message in reversed(self.messages):
            if message.role != "tool":
                break
            results[message.call_id] = message.text
        return dict(reversed(results.items()))


def _chat_messages(messages: list[JsonObject]) -> Iterator[ModelMessage]:
    for message in messages:
        role = str(message.get("role"))
        if role in ("system", "developer"):
            continue
        if reasoning := message.get("reasoning_content"):
            yield ModelMessage(role="thinking", text=str(reasoning))
        yield ModelMessage(
            role=role,
            text=_text(message.get("content")),
            calls=tuple(
                (str(call.get("id")), str(_object(call.get("function")).get("name")))
                for call in _objects(message, "tool_calls")
            ),
            call_id=str(message.get("tool_call_id", "")),
        )


def _responses_messages(items: list[JsonObject]) -> Iterator[ModelMessage]:
    for item in items:
        match item.get("type", "message"):
            case "function_call":
                call = (str(item.get("call_id")), str(item.get("name")))
                yield ModelMessage(role="assistant", text="", calls=(call,))
            case "function_call_output":
                call_id = str(item.get("call_id"))
                yield ModelMessage(role="tool", text=_text(item.get("output")), call_id=call_id)
            case "reasoning":
                signature = str(item.get("encrypted_content") or "")
                yield ModelMessage(role="thinking", text=_text(item.get("summary")), signature=signature)
            case "message" if item.get("role") not in ("system", "developer"):
                yield ModelMessage(role=str(item.get("role")), text=_text(item.get("content")))
            case _:
                pass


def _anthropic_messages(messages: list[JsonObject]) -> Iterator[ModelMessage]:
    for message in messages:
        role, content = str(message.get("role")), message.get("content")
        if isinstance(content, str):
            yield ModelMessage(role=role, text=content)
            continue
        blocks = _objects(message, "content")
        for block in blocks:
            if block.get("type") == "thinking":
                signature = str(block.get("signature") or "")
                yield ModelMessage(role="thinking", text=str(block.get("thinking")), signature=signature)
            elif block.get("type") == "tool_result":
                call_id = str(block.get("tool_use_id"))
                yield ModelMessage(role="tool", text=_text(block.get("content")), call_id=call_id)
        text = _text(content)
        calls = tuple(
            (str(block.get("id")), str(block.get("name")))
            for block in blocks
            if block.get("type") == "tool_use"
        )
        if text or calls:
            yield ModelMessage(role=role, text=text, calls=calls)


def _system_texts(messages: list[JsonObject]) -> Iterator[str]:
    return (
        _text(message.get("content"))
        for message in messages
        if message.get("role") in ("system", "developer")
    )


def _text(content: Json) -> str:
    """Return the text of a message's content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            str(block["text"]) for block in content if isinstance(block, dict) and "text" in block
        )
    return ""


def _objects(container: JsonObject, name: str) -> list[JsonObject]:
    value = container.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}
