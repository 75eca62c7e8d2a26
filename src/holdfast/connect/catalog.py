"""The tools of a session, by display name and by model name."""

import hashlib
import re
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Raw, UnsetType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError, advise_about_names
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.model.similar_names import closest_tool
from holdfast.model.visible_text import to_line
from holdfast.wire.loop_throttle import run_steps
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.strict_json import decode_json

_OTHER_NAMES = {
    "input_schema": "tool.schema",
    "inputSchema": "tool.schema",
    "title": "tool.definition.title",
    "annotations": "tool.definition.annotations",
}
"""What to write instead of names of the MCP SDK."""
MODEL_NAME_LENGTH = 64  # models do not accept longer names
# In hex digits: enough that no server can find a tool name that gets the suffix of another tool.
_SUFFIX_LENGTH = 16
_CUT_LENGTH = MODEL_NAME_LENGTH - _SUFFIX_LENGTH - 1
_HAS_SUFFIX = re.compile(rf"_[0-9a-f]{{{_SUFFIX_LENGTH}}}\Z")
_MAX_NAMED = 10  # tools in a message
_MAX_COMPARED = 300  # difflib is slow with more names
_INVALID_IN_MODEL_NAME = re.compile(r"[^A-Za-z0-9_-]")


@advise_about_names(_OTHER_NAMES)
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CatalogTool:
    """One tool of one server."""

    server: ServerSpec
    definition: Tool
    name: str
    """The name for people (the display name): `server.tool`, with a suffix if that is not unique."""
    model_name: str
    """The name for models: `server__tool`, in the characters and the length that they accept."""

    def __repr__(self) -> str:
        return f"<CatalogTool {self.name}>"

    @property
    def description(self) -> str:
        """The server's description of the tool."""
        return self.definition.description or ""

    @property
    def schema(self) -> JsonObject:
        """The JSON Schema of the arguments."""
        return _decode_schema(self.definition.input_schema)

    @property
    def output_schema(self) -> JsonObject | None:
        """The JSON Schema of the structured content, or None."""
        schema = self.definition.output_schema
        return None if isinstance(schema, UnsetType) else _decode_schema(schema)


def _decode_schema(raw: Raw) -> JsonObject:
    schema = decode_json(raw)
    return schema if isinstance(schema, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The tools that a session can call."""

    tools: tuple[CatalogTool, ...] = ()
    _by_name: Mapping[str, CatalogTool] = field(default_factory=dict[str, CatalogTool], repr=False)

    @staticmethod
    def merge(catalogs: "Iterable[Catalog]") -> "Catalog":
        """Merge the catalogs of groups of servers (see `group_servers`)."""
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
        """The end of the message about an unknown name: the tool that was probably meant, or the tools of the server in the name."""
        compared = self.tools[:_MAX_COMPARED]
        named_without_server = [tool.name for tool in compared if tool.definition.name == name]
        meant = next(iter(named_without_server), "") or closest_tool(name, [tool.name for tool in compared])
        if meant:
            return f" Did you mean {meant!r}?"
        servers = {tool.server.name for tool in compared if name.startswith(f"{tool.server.name}.")}
        server = max(servers, key=len, default="")  # the names of servers may contain dots
        names = [tool.definition.name for tool in compared if tool.server.name == server]
        more = ", …" if len(names) > _MAX_NAMED else ""
        listed = to_line(", ".join(names[:_MAX_NAMED]))
        return f" The tools of {server!r} are: {listed}{more}." if names else ""


def build_catalog(tools: Iterable[tuple[ServerSpec, Iterable[Tool]]]) -> Catalog:
    """Build the catalog of the tools that the specs allow. Names do not depend on the order of servers or tools."""
    return run_steps(catalog_steps(tools))


def catalog_steps(
    tools: Iterable[tuple[ServerSpec, Iterable[Tool]]],
) -> Generator[None, None, Catalog]:
    """The work of `build_catalog` as a generator that yields often, so that the caller can let other tasks run.

    No two tools get the same name. A name that is not unique gets a suffix, which is a hash of the server's and the tool's
    names. A model name that looks as if it had a suffix also gets one, so that no server can give its tool the name of another tool.
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
    catalog_tools: list[CatalogTool] = []
    by_name: dict[str, CatalogTool] = {}
    for server, tool, name, model_name in named:
        yield
        if names[name] > 1:
            name = f"{name}#{_suffix(server, tool)}"  # noqa: PLW2901 - the unique form of the name
        if (
            model_names[model_name] > 1
            or len(model_name) > MODEL_NAME_LENGTH
            or _HAS_SUFFIX.search(model_name)
        ):
            model_name = f"{model_name[:_CUT_LENGTH]}_{_suffix(server, tool)}"  # noqa: PLW2901
        catalog_tool = CatalogTool(server=server, definition=tool, name=name, model_name=model_name)
        catalog_tools.append(catalog_tool)
        by_name[model_name] = by_name[name] = catalog_tool
    return Catalog(tools=tuple(catalog_tools), _by_name=by_name)


def group_servers(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Group the servers whose tools could get the same names, such as `a` and `a.b`. Return the members of each server's group."""
    groups: list[list[str]] = []
    first = ""
    # In sorted order, the prefixes that begin with another prefix come directly after it.
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
