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


def to_messages(said: Messages) -> list[JsonObject]:
    """The messages in MCP's form. A text or other content is a message of the user."""
    parts = cast("Sequence[Any]", said) if isinstance(said, list | tuple) else (said,)
    return [_to_message(part).block() for part in parts]


def _to_message(part: object) -> Message:
    if isinstance(part, Message):
        return part
    if isinstance(part, str | Content):
        return Message(part)
    raise TypeError(
        f"A message must be a str, a Message or content such as Image, not {type(part).__name__}."
    )
