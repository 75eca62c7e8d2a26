"""What a tool can give back beside its data: pictures, sounds, and things to look up."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class Text:
    """Words for the model."""

    text: str

    def block(self) -> JsonObject:
        """As MCP says it."""
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True)
class Image:
    """A picture."""

    data: bytes
    mime_type: str = "image/png"

    def block(self) -> JsonObject:
        """As MCP says it."""
        return {"type": "image", "data": _text(self.data), "mimeType": self.mime_type}


@dataclass(frozen=True, slots=True)
class Audio:
    """A sound."""

    data: bytes
    mime_type: str = "audio/wav"

    def block(self) -> JsonObject:
        """As MCP says it."""
        return {"type": "audio", "data": _text(self.data), "mimeType": self.mime_type}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLink:
    """Something that can be read elsewhere."""

    uri: str
    name: str
    description: str = ""
    mime_type: str = ""

    def block(self) -> JsonObject:
        """As MCP says it."""
        said: JsonObject = {"type": "resource_link", "uri": self.uri, "name": self.name}
        return said | _given(description=self.description, mimeType=self.mime_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that can be read, along with what it says."""

    uri: str
    content: str | bytes
    mime_type: str = ""

    def block(self) -> JsonObject:
        """As MCP says it."""
        said: JsonObject = {"uri": self.uri} | _given(mimeType=self.mime_type)
        if isinstance(self.content, str):
            return {"type": "resource", "resource": {**said, "text": self.content}}
        return {"type": "resource", "resource": {**said, "blob": _text(self.content)}}


Content: TypeAlias = Text | Image | Audio | ResourceLink | Resource


@dataclass(frozen=True, slots=True)
class Reply:
    """Content beside the data. A handler with data alone returns just that."""

    content: tuple[Content, ...] | list[Content] = ()
    data: Mapping[str, Any] | object = None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _given(**said: str) -> JsonObject:
    return {name: value for name, value in said.items() if value}
