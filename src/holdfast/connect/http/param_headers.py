"""The arguments that a call repeats in HTTP headers. The tool's schema marks them with `x-mcp-header`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

from holdfast.wire.mcp.tools import ParamHeader, Tool
from holdfast.wire.message_memory import LONG_LINE_BYTES
from holdfast.wire.messages import Raw
from holdfast.wire.parse_threads import PARSE_THREADS
from holdfast.wire.strict_json import DECODE_ERRORS, decode_json, make_decoder

_MARK = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_TYPES = ("string", "integer", "boolean")
_MAX_HEADERS = 32  # per tool

_Path: TypeAlias = tuple[str, ...]
_Marked: TypeAlias = tuple[_Path, str, str]
"""The path of an argument, the name of its header, and its type."""


class ParamHeaders:
    """The marked arguments of each tool of one server."""

    def __init__(self, quota_owner: str = "") -> None:
        """`quota_owner` is that of the link's session; see `Scope.quota_owner`."""
        self._quota_owner = quota_owner
        self._by_tool: dict[str, tuple[_Marked, ...]] = {}

    async def set_tools(self, tools: Sequence[Tool]) -> None:
        """Replace the tools."""
        marked = [tool for tool in tools if _MARK.encode() in bytes(tool.input_schema)]
        if sum(len(tool.input_schema) for tool in marked) > LONG_LINE_BYTES:
            self._by_tool = await PARSE_THREADS.run(_find_marked_in_tools, marked, owner=self._quota_owner)
        else:
            self._by_tool = _find_marked_in_tools(marked)

    def headers(self, tool: str, arguments: Raw) -> dict[str, str]:
        """The headers of one call. Their values are not encoded yet."""
        marked = self._by_tool.get(tool)
        if not marked or not arguments:
            return {}
        decoded = decode_json(arguments)
        values = ((name, _header_text(_value_at(decoded, path))) for path, name, _ in marked)
        return {f"Mcp-Param-{name}": value for name, value in values if value is not None}


def param_headers_of(tool: Tool) -> tuple[ParamHeader, ...]:
    """The arguments of a tool that an HTTP client must repeat in headers."""
    if _MARK.encode() not in bytes(tool.input_schema):
        return ()
    return tuple(
        ParamHeader(path=path, header=name, is_number=kind == "integer")
        for path, name, kind in _find_marked_in_tool(tool)
    )


def _find_marked_in_tools(tools: Sequence[Tool]) -> dict[str, tuple[_Marked, ...]]:
    return {tool.name: marked for tool in tools if (marked := _find_marked_in_tool(tool))}


def _find_marked_in_tool(tool: Tool) -> tuple[_Marked, ...]:
    try:
        schema = _decode_schema(tool.input_schema)
    except DECODE_ERRORS:
        return ()
    return tuple(islice(_find_marked_in_schema(schema), _MAX_HEADERS))


_decode_schema = make_decoder(dict[str, Any])


def _find_marked_in_schema(schema: Mapping[str, Any], path: _Path = ()) -> Iterator[_Marked]:
    """Each marked argument below `properties`. Other marks have no effect."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, subschema in cast(dict[str, object], properties).items():
        if not isinstance(subschema, dict):
            continue
        inner = cast(dict[str, Any], subschema)
        mark = inner.get(_MARK)
        if isinstance(mark, str) and _TOKEN.fullmatch(mark) and inner.get("type") in _TYPES:
            yield (*path, name), mark, str(inner.get("type"))
        yield from _find_marked_in_schema(inner, (*path, name))


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
