"""The session's tools, as a model sees them."""

from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic_ai.tools import ToolDefinition

from holdfast.connect.catalog import CatalogTool

_MAX_DESCRIPTION = 4000
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolList:
    """The tools of one request: their definitions, and the tools by the names that the model uses."""

    tools: tuple[CatalogTool, ...]
    definitions: list[ToolDefinition]
    by_name: dict[str, CatalogTool]
    size: int
    """About how many characters the definitions have."""


class Toolset:
    """Makes the list of tools for each request. The list is cached while the session's tools are the same."""

    def __init__(self) -> None:
        self._last: ToolList | None = None

    def list(self, tools: tuple[CatalogTool, ...]) -> ToolList:
        """Return the list of the tools that the model may call now."""
        if self._last is None or self._last.tools is not tools:
            self._last = _make_list(tools)
        return self._last


def _make_list(tools: tuple[CatalogTool, ...]) -> ToolList:
    definitions = [_definition(tool) for tool in tools]
    return ToolList(
        tools=tools,
        definitions=definitions,
        size=sum(len(one.description or "") for one in definitions)
        + sum(len(tool.definition.input_schema) for tool in tools),
        by_name={tool.model_name: tool for tool in tools},
    )


def _definition(tool: CatalogTool) -> ToolDefinition:
    return ToolDefinition(
        name=tool.model_name,
        description=(tool.definition.description or tool.definition.title or "")[:_MAX_DESCRIPTION] or None,
        parameters_json_schema=_schema(tool),
        strict=False,  # the schema is passed on unchanged
    )


def _schema(tool: CatalogTool) -> dict[str, Any]:
    try:
        schema = msgspec.json.decode(tool.definition.input_schema, type=dict[str, Any])
    except msgspec.MsgspecError:
        return _NO_ARGUMENTS
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}
