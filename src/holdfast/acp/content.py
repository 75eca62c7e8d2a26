"""Checks and makes ACP content blocks, for prompts and tool results."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event_text import FileChange
from holdfast.model.json import JsonObject


class _Annotations(msgspec.Struct, rename="camel"):
    audience: list[Literal["assistant", "user"]] | None = None
    last_modified: str | None = None
    priority: float | None = None


class _Block(msgspec.Struct, tag_field="type", rename="camel"):
    annotations: _Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _Text(_Block, tag="text", kw_only=True):
    text: str


class _Image(_Block, tag="image", kw_only=True):
    data: str
    mime_type: str
    uri: str | None = None


class _Audio(_Block, tag="audio", kw_only=True):
    data: str
    mime_type: str


class _ResourceLink(_Block, tag="resource_link", kw_only=True):
    name: str
    uri: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class _ResourceContents(msgspec.Struct, rename="camel"):
    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    def __post_init__(self) -> None:
        if (self.text is None) == (self.blob is None):
            raise ValueError("a resource must have exactly one of text and blob")


class _EmbeddedResource(_Block, tag="resource", kw_only=True):
    resource: _ResourceContents


_PROMPT_TYPES = {
    "text": _Text,
    "image": _Image,
    "resource_link": _ResourceLink,
    "resource": _EmbeddedResource,
}
_PROMPT_TYPES_TEXT = "text, image, resource_link or resource"
_RESULT_TYPES = {**_PROMPT_TYPES, "audio": _Audio}
_MAX_BLOCKS = 100
"""How many blocks of a tool's result an editor gets."""


def check_prompt(blocks: list[JsonObject]) -> None:
    """Raise BAD_ARGUMENT if a block is malformed or of an unsupported type."""
    for index, block in enumerate(blocks):
        block_type = block.get("type")
        kind = _PROMPT_TYPES.get(block_type) if isinstance(block_type, str) else None
        if kind is None:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"prompt[{index}]: block type {str(block_type)[:40]!r} is not supported; use {_PROMPT_TYPES_TEXT}.",
            )
        try:
            msgspec.convert(block, kind)
        except msgspec.ValidationError as error:
            raise HoldfastError(codes.BAD_ARGUMENT, f"prompt[{index}]: malformed block: {error}.") from None


def editor_blocks(blocks: Sequence[JsonObject]) -> list[JsonObject]:
    """Convert the blocks of a tool's result for an editor. If some are left out, the last block says how many."""
    shown = [editor_block(block) for block in blocks[:_MAX_BLOCKS]]
    if left_out := len(blocks) - len(shown):
        shown.append({"type": "text", "text": f"({left_out} more blocks are not shown)"})
    return shown


def editor_block(block: JsonObject) -> JsonObject:
    """Return a block of a tool's result unchanged if it is valid in ACP; else a text block with its JSON."""
    block_type = block.get("type")
    kind = _RESULT_TYPES.get(block_type) if isinstance(block_type, str) else None
    try:
        if kind is not None:
            msgspec.convert(block, kind)
            return block
    except msgspec.ValidationError:
        pass
    return {"type": "text", "text": msgspec.json.encode(block).decode()}


def diff_block(change: FileChange) -> JsonObject:
    """Return the diff of a changed file as content of a tool call."""
    return {
        "type": "diff",
        "path": change.path,
        "oldText": change.old_text,
        "newText": change.new_text,
    }
