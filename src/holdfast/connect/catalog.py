"""The tools of a session, by display name and by model name."""

import hashlib
import re
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import ServerSpec
from holdfast.wire.loop_throttle import finish
from holdfast.wire.mcp.tools import Tool

MODEL_NAME_LENGTH = 64
_SUFFIX_LENGTH = 16  # so many hex digits that no server can find a tool name with the suffix of another tool
_CUT_LENGTH = MODEL_NAME_LENGTH - _SUFFIX_LENGTH - 1
_HAS_SUFFIX = re.compile(rf"_[0-9a-f]{{{_SUFFIX_LENGTH}}}\Z")
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

    @staticmethod
    def merge(catalogs: "Iterable[Catalog]") -> "Catalog":
        """One catalog of the tools of several ones, which are those of different groups (see `group_servers`)."""
        tools: list[CatalogTool] = []
        by_name: dict[str, CatalogTool] = {}
        for catalog in catalogs:
            tools += catalog.tools
            by_name.update(catalog._by_name)
        return Catalog(tools=tuple(tools), _by_name=by_name)

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
    return finish(catalog_steps(tools))


def catalog_steps(
    tools: Iterable[tuple[ServerSpec, Iterable[Tool]]],
) -> Generator[None, None, Catalog]:
    """The work of `build_catalog`, in short steps.

    No two tools get the same name: a suffix is made from the whole name of the server and the tool, and a name that ends like
    one with a suffix gets a suffix, too. Otherwise a server could choose the name that another server's tool has got.
    """
    named: list[tuple[ServerSpec, Tool, str, str]] = []
    for server, listed in tools:
        for tool in listed:
            yield
            if server.allows_tool(tool.name):
                display, model_name = (
                    _display_name(server.name, tool.name),
                    _model_name(server.name, tool.name),
                )
                named.append((server, tool, display, model_name))
    names = Counter(name for _, _, name, _ in named)
    model_names = Counter(model_name for _, _, _, model_name in named)
    entries: list[CatalogTool] = []
    by_name: dict[str, CatalogTool] = {}
    for server, tool, name, model_name in named:
        yield
        if names[name] > 1:
            name = f"{name}#{_suffix(server, tool)}"  # noqa: PLW2901 - the same name, made unique
        if (
            model_names[model_name] > 1
            or len(model_name) > MODEL_NAME_LENGTH
            or _HAS_SUFFIX.search(model_name)
        ):
            model_name = f"{model_name[:_CUT_LENGTH]}_{_suffix(server, tool)}"  # noqa: PLW2901
        entry = CatalogTool(server=server, definition=tool, name=name, model_name=model_name)
        entries.append(entry)
        by_name[model_name] = by_name[name] = entry
    return Catalog(tools=tuple(entries), _by_name=by_name)


def group_servers(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each server: itself, and the servers whose tools could get the same names as its own, such as `a` and `a.b`.

    The tools of each group can be named without those of the other groups.
    """
    groups: list[list[str]] = []
    first = ""
    # In this order, all prefixes that begin with another one follow it directly.
    for prefix, name in sorted((f"{_INVALID_IN_MODEL_NAME.sub('_', name)}_", name) for name in names):
        if groups and prefix.startswith(first):
            groups[-1].append(name)
        else:
            first = prefix
            groups.append([name])
    return {name: tuple(group) for group in groups for name in group}


def could_belong_to(server: str, name: str) -> bool:
    """Whether a tool with this display name or model name could belong to the server."""
    model_prefix = _model_name(server, "")[:_CUT_LENGTH]
    return name.startswith((_display_name(server, ""), model_prefix))


def _suffix(server: ServerSpec, tool: Tool) -> str:
    return hashlib.sha256(f"{server.name}\0{tool.name}".encode()).hexdigest()[:_SUFFIX_LENGTH]


def _display_name(server: str, tool: str) -> str:
    return f"{server}.{tool}"


def _model_name(server: str, tool: str) -> str:
    return _INVALID_IN_MODEL_NAME.sub("_", f"{server}__{tool}")
