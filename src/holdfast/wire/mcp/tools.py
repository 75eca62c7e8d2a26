"""The MCP messages about tools. The parts that Holdfast does not need are not decoded."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.model.json import Json
from holdfast.wire.messages import EMPTY_OBJECT


class Tool(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """A tool's definition, as its server sent it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Raw = EMPTY_OBJECT
    output_schema: Raw | UnsetType = UNSET
    annotations: Raw | UnsetType = UNSET
    icons: Raw | UnsetType = UNSET
    execution: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")

    @property
    def summary(self) -> str:
        """The first line of the description, or of the title if there is no description."""
        return (self.description or self.title or "").strip().partition("\n")[0]


class ToolPage(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One page of a server's tools."""

    tools: list[Tool]
    next_cursor: str | None = None


class CallParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """The params of `tools/call`."""

    name: str
    arguments: Raw = EMPTY_OBJECT
    request_state: str | None = msgspec.field(default=None, name="requestState")
    """In the modern era: repeats the state from an earlier result that asked for input."""


class CallResult(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """The result of `tools/call`. `is_error` is True if the tool reported an error."""

    content: list[Raw] = []
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False
    result_type: str = "complete"
    meta: dict[str, Json] = msgspec.field(default_factory=dict[str, Json], name="_meta")


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """A result with one text block."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if is_error:
        result["isError"] = True
    return result


class ParamHeader(msgspec.Struct, frozen=True, kw_only=True):
    """An argument that HTTP clients repeat in the header `Mcp-Param-<header>`, so that proxies can route by its value."""

    path: tuple[str, ...]
    """The keys that lead to the argument: more than one if it is inside an object."""
    header: str
    is_number: bool = False
    """Whether the values are compared as numbers, so that `3` equals `3.0`."""
