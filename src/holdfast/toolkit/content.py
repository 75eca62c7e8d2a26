"""Content that a tool can return besides its data: text, images, audio, resources."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class Text:
    """Text for the model."""

    text: str

    def block(self) -> JsonObject:
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True)
class Image:
    """An image."""

    data: bytes
    mime_type: str = "image/png"

    def block(self) -> JsonObject:
        return {"type": "image", "data": _base64(self.data), "mimeType": self.mime_type}


@dataclass(frozen=True, slots=True)
class Audio:
    """An audio clip."""

    data: bytes
    mime_type: str = "audio/wav"

    def block(self) -> JsonObject:
        return {"type": "audio", "data": _base64(self.data), "mimeType": self.mime_type}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLink:
    """A link to a resource."""

    uri: str
    name: str
    description: str = ""
    mime_type: str = ""

    def block(self) -> JsonObject:
        link: JsonObject = {"type": "resource_link", "uri": self.uri, "name": self.name}
        return link | _without_empty(description=self.description, mimeType=self.mime_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
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


@dataclass(frozen=True, slots=True)
class Reply:
    """A handler's result with content blocks. A handler that has only data returns the data itself."""

    content: tuple[Content, ...] | list[Content] = ()
    data: Mapping[str, Any] | object = None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _without_empty(**fields: str) -> JsonObject:
    return {name: value for name, value in fields.items() if value}
