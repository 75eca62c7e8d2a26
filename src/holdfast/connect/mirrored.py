"""Arguments that a tool wants repeated as headers of the request (`x-mcp-header` in its schema)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from holdfast.wire.frame import Raw

_MARK = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_KINDS = ("string", "integer", "boolean")
_MOST = 32  # headers of one tool

_Path: TypeAlias = tuple[str, ...]


class Mirrored:
    """What each tool of one server wants repeated, as its list of tools last said."""

    def __init__(self) -> None:
        self._by_tool: dict[str, tuple[tuple[_Path, str], ...]] = {}

    def learn(self, page: Raw) -> None:
        """Read a page of the list; most have nothing of the kind, which is seen without reading it."""
        if _MARK.encode() not in bytes(page):
            return
        try:
            tools = _decode_page(page).tools
        except msgspec.MsgspecError:
            return  # whoever asked for the list says what is wrong with it
        for tool in tools:
            wanted = tuple(_marked(tool.input_schema))[:_MOST]
            if wanted:
                self._by_tool[tool.name] = wanted

    def headers(self, tool: str, arguments: Raw) -> dict[str, str]:
        """The headers of one call, their values still plain text."""
        wanted = self._by_tool.get(tool)
        if not wanted or not arguments:
            return {}
        given: object = msgspec.json.decode(arguments)
        values = ((name, _text(_at(given, path))) for path, name in wanted)
        return {f"Mcp-Param-{name}": value for name, value in values if value is not None}


class _Listed(msgspec.Struct, rename="camel"):
    name: str
    input_schema: dict[str, Any] = {}


class _Page(msgspec.Struct):
    tools: list[_Listed]


_decode_page = msgspec.json.Decoder(_Page).decode


def _marked(schema: Mapping[str, Any], path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """The marks that can be reached by properties alone; others mean nothing."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, below in cast(dict[str, object], properties).items():
        if not isinstance(below, dict):
            continue
        inner = cast(dict[str, Any], below)
        mark = inner.get(_MARK)
        if isinstance(mark, str) and _TOKEN.fullmatch(mark) and inner.get("type") in _KINDS:
            yield (*path, name), mark
        yield from _marked(inner, (*path, name))


def _at(node: object, path: _Path) -> object:
    for key in path:
        if not isinstance(node, dict):
            return None
        node = cast(dict[str, object], node).get(key)
    return node


def _text(value: object) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | str():
            return str(value)
        case _:
            return None
