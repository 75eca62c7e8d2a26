"""Converts prompts and the results of tools to the texts and images that a model gets."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.agent.model.instructions import tag_author
from holdfast.model.json import Json, JsonObject

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MAX_IMAGE = 14_000_000  # characters of base64: about 10 MB
_MAX_ATTACHED = 200_000  # characters of one attached text
_MAX_RESULT_IMAGES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptImage:
    """An image in a prompt, or in the result of a tool."""

    data: bytes
    media_type: str


def prompt_parts(blocks: Sequence[JsonObject]) -> list[str | PromptImage]:
    """Return the texts and images of a prompt. Attached texts are marked with their addresses."""
    return [part for block in blocks if (part := _image(block) or _text(block))]


def _image(block: JsonObject) -> PromptImage | None:
    """Return the image in a block; None if the block has no image that models accept."""
    match block:
        case {"type": "image", "data": str() as data, "mimeType": str() as media_type} if (
            media_type in _IMAGE_TYPES and len(data) <= _MAX_IMAGE
        ):
            try:
                return PromptImage(data=base64.b64decode(data, validate=True), media_type=media_type)
            except ValueError:
                return None
        case _:
            return None


def shown_blocks(content: Sequence[JsonObject], structured: Json) -> Sequence[JsonObject]:
    """Return the blocks of a result that the model gets. Some servers send structured content without the same content as text."""
    if content or structured is None:
        return content
    return [{"type": "text", "text": msgspec.json.encode(structured).decode()}]


def result_parts(content: Iterable[JsonObject], limit: int) -> tuple[str, list[PromptImage]]:
    """Return a tool's result as one text of at most about `limit` characters, and its first images."""
    texts: list[str] = []
    images: list[PromptImage] = []
    for block in content:
        if len(images) < _MAX_RESULT_IMAGES and (image := _image(block)):
            images.append(image)
            texts.append(f"[image {len(images)}, shown below]")
        else:
            texts.append(_result_block(block))
    return _shorten("\n".join(filter(None, texts)), limit), images


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n[… {len(text) - head - tail} characters were left out …]\n{text[-tail:]}"


def _text(block: JsonObject) -> str:
    match block:
        case {"type": "text", "text": str() as text}:
            return text
        case {"type": "resource_link", "uri": str() as uri}:
            return f"[attached: {_safe_label(uri)}]"
        case {"type": "resource", "resource": {"uri": str() as uri, "text": str() as text}}:
            return tag_author(f"attached {_safe_label(uri)}", text[:_MAX_ATTACHED])
        case {"type": str() as kind}:
            return f"[attached: {_safe_label(kind)}, which is not sent to the model]"
        case _:
            return ""


def _result_block(block: JsonObject) -> str:
    match block:
        case {"type": "text", "text": str() as text}:
            return text
        case {"type": "resource_link", "uri": str() as uri}:
            return f"[link: {_safe_label(uri)}]"
        case {"type": "resource", "resource": {"text": str() as text}}:
            return text
        case {"type": str() as kind, **rest}:
            return f"[{kind}{_mime(rest.get('mimeType'))}; not shown]"
        case _:
            return ""


def _mime(value: Json) -> str:
    return f", {value[:80]}" if isinstance(value, str) else ""


def _safe_label(text: str) -> str:
    return "".join(_escaped(text[:500]))


def _escaped(text: str) -> Iterator[str]:
    for character in text:
        yield "?" if character in '<>"[]' or not character.isprintable() else character
