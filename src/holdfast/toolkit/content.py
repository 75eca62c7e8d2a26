"""Content that a tool can return in addition to its data: text, images, audio, resources."""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeGuard, cast

import msgspec

from holdfast.model.json import JsonObject

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=object)
else:
    from typing import TypeVar

    T = TypeVar("T")


class Text(msgspec.Struct, frozen=True):
    """Text for the model."""

    text: str

    def block(self) -> JsonObject:
        return {"type": "text", "text": self.text}


class Image(msgspec.Struct, frozen=True):
    """An image."""

    data: bytes
    mime_type: str = "image/png"

    def block(self) -> JsonObject:
        return {"type": "image", "data": _base64(self.data), "mimeType": self.mime_type}


class Audio(msgspec.Struct, frozen=True):
    """An audio clip."""

    data: bytes
    mime_type: str = "audio/wav"

    def block(self) -> JsonObject:
        return {"type": "audio", "data": _base64(self.data), "mimeType": self.mime_type}


class ResourceLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link to a resource."""

    uri: str
    name: str
    description: str = ""
    mime_type: str = ""

    def block(self) -> JsonObject:
        link: JsonObject = {"type": "resource_link", "uri": self.uri, "name": self.name}
        return link | _without_empty(description=self.description, mimeType=self.mime_type)


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource with its content."""

    uri: str
    content: str | bytes
    mime_type: str = ""

    def block(self) -> JsonObject:
        resource: JsonObject = {"uri": self.uri} | _without_empty(mimeType=self.mime_type)
        if isinstance(self.content, str):
            return {"type": "resource", "resource": {**resource, "text": self.content}}
        return {"type": "resource", "resource": {**resource, "blob": _base64(self.content)}}


Content: TypeAlias = Text | Image | Audio | ResourceLink | Resource


CONTENT_TYPES = (Text, Image, Audio, ResourceLink, Resource)


class Reply(msgspec.Struct, Generic[T], frozen=True):
    """A handler's result with content blocks. A handler that has only data returns the data itself.

    `-> Reply[Size]` declares the type of the data. With `envelope="meta"`, a `Text` in the content replaces the text of
    the data, which is then only in the structured content.
    """

    content: Sequence[Content] = ()
    data: T | None = None

    def __post_init__(self) -> None:
        for item in cast("Sequence[object]", self.content):
            if not isinstance(item, CONTENT_TYPES):
                kind = type(item).__name__
                raise TypeError(
                    f"The content of a Reply has a {kind}. Use Text, Image, Audio, ResourceLink or Resource; data is its second argument."
                )


def has_content(returned: object) -> TypeGuard[Sequence[object]]:
    """Whether a list or tuple has content blocks among its items."""
    return isinstance(returned, list | tuple) and any(
        isinstance(item, CONTENT_TYPES) for item in cast("list[object]", returned)
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _without_empty(**fields: str) -> JsonObject:
    return {name: value for name, value in fields.items() if value}
