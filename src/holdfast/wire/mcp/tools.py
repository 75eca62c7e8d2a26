"""The shapes of tools on the wire; what we do not read stays raw."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.model.json import Json
from holdfast.wire.frame import EMPTY


class Tool(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """A tool as its server describes it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Raw = EMPTY
    output_schema: Raw | UnsetType = UNSET
    annotations: Raw | UnsetType = UNSET
    icons: Raw | UnsetType = UNSET
    execution: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ToolPage(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One page of a server's tools."""

    tools: list[Tool]
    next_cursor: str | None = None


class CallParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which tool is called, with what."""

    name: str
    arguments: Raw = EMPTY


class CallResult(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What a tool answered. An error it reports (`is_error`) is an answer, too."""

    content: list[Raw] = []
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False
    result_type: str = "complete"
    meta: dict[str, Json] = msgspec.field(default_factory=dict[str, Json], name="_meta")


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """A result of one text block."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if is_error:
        result["isError"] = True
    return result
