"""The tools of a session, by display name and by model name."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import ServerSpec
from holdfast.wire.mcp.tools import Tool

MODEL_NAME_LENGTH = 64
_MAX_COMPARED = 300  # difflib is slow with more names
_INVALID_IN_MODEL_NAME = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTool:
    """One tool of one server: `name` is `server.tool`, `model_name` is `server__tool`."""

    server: ServerSpec
    definition: Tool
    name: str
    model_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The tools that the session can call. Rebuilt when a server's tools change."""

    tools: tuple[CatalogTool, ...] = ()
    _by_name: Mapping[str, CatalogTool] = field(default_factory=dict[str, CatalogTool], repr=False)

    def get(self, name: str) -> CatalogTool | None:
        """The tool with this display name or model name; None if there is none."""
        return self._by_name.get(name)

    def find(self, name: str) -> CatalogTool:
        """The tool with this display name or model name. Raise an error with a suggestion if there is none."""
        tool = self._by_name.get(name)
        if tool is None:
            raise HoldfastError(
                codes.UNKNOWN_TOOL, f"There is no tool {name[:120]!r}.{self._suggestion(name)}"
            )
        return tool

    def _suggestion(self, name: str) -> str:
        from difflib import get_close_matches

        matches = get_close_matches(name[:120], [tool.name for tool in self.tools[:_MAX_COMPARED]], n=1)
        return f" Did you mean {matches[0]!r}?" if matches else ""


def build_catalog(tools: Iterable[tuple[ServerSpec, Iterable[Tool]]]) -> Catalog:
    """Build the catalog of the tools that the specs allow. Names do not depend on the order of servers or tools."""
    named = [
        (server, tool, _display_name(server.name, tool.name), _model_name(server.name, tool.name))
        for server, listed in tools
        for tool in listed
        if server.allows_tool(tool.name)
    ]
    names = Counter(name for _, _, name, _ in named)
    model_names = Counter(model_name for _, _, _, model_name in named)
    entries: list[CatalogTool] = []
    for server, tool, name, model_name in named:
        if names[name] > 1:
            name = f"{name}#{_suffix(server, tool)}"  # noqa: PLW2901 - the same name, made unique
        if model_names[model_name] > 1 or len(model_name) > MODEL_NAME_LENGTH:
            model_name = f"{model_name[: MODEL_NAME_LENGTH - 9]}_{_suffix(server, tool)}"  # noqa: PLW2901
        entries.append(CatalogTool(server=server, definition=tool, name=name, model_name=model_name))
    by_name = {entry.model_name: entry for entry in entries} | {entry.name: entry for entry in entries}
    return Catalog(tools=tuple(entries), _by_name=by_name)


def could_belong_to(server: str, name: str) -> bool:
    """Whether a tool with this display name or model name could belong to the server."""
    model_prefix = _model_name(server, "")[: MODEL_NAME_LENGTH - 9]
    return name.startswith((_display_name(server, ""), model_prefix))


def _suffix(server: ServerSpec, tool: Tool) -> str:
    return hashlib.sha256(f"{server.name}\0{tool.name}".encode()).hexdigest()[:8]


def _display_name(server: str, tool: str) -> str:
    return f"{server}.{tool}"


def _model_name(server: str, tool: str) -> str:
    return _INVALID_IN_MODEL_NAME.sub("_", f"{server}__{tool}")
