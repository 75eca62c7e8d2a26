"""Arguments that a call repeats as HTTP headers, because the tool's schema marks them with `x-mcp-header`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from holdfast.wire.frame import Raw

_MARK = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_TYPES = ("string", "integer", "boolean")
_MAX_HEADERS = 32  # per tool

_Path: TypeAlias = tuple[str, ...]


class ParamHeaders:
    """The marked arguments of each tool of one server."""

    def __init__(self) -> None:
        self._by_tool: dict[str, tuple[tuple[_Path, str], ...]] = {}

    def add_page(self, page: Raw) -> None:
        """Update the tools in this page of `tools/list`. Most servers mark nothing; their pages are not parsed."""
        if not self._by_tool and _MARK.encode() not in bytes(page):
            return
        try:
            tools = _decode_page(page).tools
        except msgspec.MsgspecError:
            return  # the caller of tools/list reports what is wrong with it
        for tool in tools:
            marked = tuple(_find_marked(tool.input_schema))[:_MAX_HEADERS]
            if marked:
                self._by_tool[tool.name] = marked
            else:
                self._by_tool.pop(tool.name, None)

    def headers(self, tool: str, arguments: Raw) -> dict[str, str]:
        """The headers of one call. The caller encodes their values."""
        marked = self._by_tool.get(tool)
        if not marked or not arguments:
            return {}
        decoded: object = msgspec.json.decode(arguments)
        values = ((name, _header_text(_value_at(decoded, path))) for path, name in marked)
        return {f"Mcp-Param-{name}": value for name, value in values if value is not None}


class _ListedTool(msgspec.Struct, rename="camel"):
    name: str
    input_schema: dict[str, Any] = {}


class _Page(msgspec.Struct):
    tools: list[_ListedTool]


_decode_page = msgspec.json.Decoder(_Page).decode


def _find_marked(schema: Mapping[str, Any], path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """The path and header of each marked argument below `properties`. Other marks have no effect."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, subschema in cast(dict[str, object], properties).items():
        if not isinstance(subschema, dict):
            continue
        inner = cast(dict[str, Any], subschema)
        mark = inner.get(_MARK)
        if isinstance(mark, str) and _TOKEN.fullmatch(mark) and inner.get("type") in _TYPES:
            yield (*path, name), mark
        yield from _find_marked(inner, (*path, name))


def _value_at(node: object, path: _Path) -> object:
    for key in path:
        if not isinstance(node, dict):
            return None
        node = cast(dict[str, object], node).get(key)
    return node


def _header_text(value: object) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | str():
            return str(value)
        case _:
            return None
