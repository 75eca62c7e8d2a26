"""Messages of a prompt or of a conversation with the client's model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from holdfast.model.json import JsonObject
from holdfast.toolkit.content import Content, Text


@dataclass(frozen=True, slots=True)
class Message:
    """One message: a string or other content, and who says it."""

    content: str | Content
    role: Literal["user", "assistant"] = "user"

    def block(self) -> JsonObject:
        content = Text(self.content) if isinstance(self.content, str) else self.content
        return {"role": self.role, "content": content.block()}


Messages: TypeAlias = str | Content | Message | Sequence[str | Content | Message]


def to_messages(messages: Messages) -> list[JsonObject]:
    """The messages in MCP's form. A string or other content is a message of the user."""
    listed = cast("Sequence[Any]", messages) if isinstance(messages, list | tuple) else (messages,)
    return [_to_message(message).block() for message in listed]


def _to_message(message: object) -> Message:
    if isinstance(message, Message):
        return message
    if isinstance(message, str | Content):
        return Message(message)
    raise TypeError(
        f"A message must be a str, a Message or content such as Image, not {type(message).__name__}."
    )
