"""The blocks of content that are taken, stored and shown: each must have the shape its kind has in the protocol."""

from typing import Any, Literal

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject


class _Annotations(msgspec.Struct, rename="camel"):
    audience: list[Literal["assistant", "user"]] | None = None
    last_modified: str | None = None
    priority: float | None = None


class _Block(msgspec.Struct, tag_field="type", rename="camel"):
    annotations: _Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Text(_Block, tag="text", kw_only=True):
    """Words."""

    text: str


class Image(_Block, tag="image", kw_only=True):
    """A picture."""

    data: str
    mime_type: str
    uri: str | None = None


class Audio(_Block, tag="audio", kw_only=True):
    """A sound."""

    data: str
    mime_type: str


class Link(_Block, tag="resource_link", kw_only=True):
    """Where something is."""

    name: str
    uri: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class _Content(msgspec.Struct, rename="camel"):
    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    def __post_init__(self) -> None:
        if (self.text is None) == (self.blob is None):
            raise ValueError("A resource has a text or a blob")


class Resource(_Block, tag="resource", kw_only=True):
    """Something, whole."""

    resource: _Content


_TAKEN = ("text", "image", "resource_link", "resource")


def check_prompt(blocks: list[JsonObject]) -> None:
    """Refuse a kind of block that we did not offer to take, by its name, and one that is not what its kind is."""
    for place, block in enumerate(blocks):
        kind = block.get("type")
        if kind not in _TAKEN:
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"A prompt takes {', '.join(_TAKEN)}, not {str(kind)[:40]!r}."
            )
        try:
            msgspec.convert(block, Text | Image | Link | Resource)
        except msgspec.ValidationError as error:
            raise HoldfastError(codes.BAD_ARGUMENT, f"prompt[{place}] cannot be read: {error}.") from None


def shown(block: JsonObject) -> JsonObject:
    """A tool's block as an editor takes it; one that no editor would, as its text."""
    try:
        msgspec.convert(block, Text | Image | Audio | Link | Resource)
    except msgspec.ValidationError:
        return {"type": "text", "text": msgspec.json.encode(block).decode()}
    return block
