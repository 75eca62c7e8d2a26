"""The tools that a client is offered, by the names that it uses for them."""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.connect.catalog import CatalogTool
from holdfast.connect.http.param_headers import param_headers_of
from holdfast.gateway.names import NameTable, ServerItem, name_steps
from holdfast.gateway.paging import ITEMS_PER_STEP, MergedList, merge_steps
from holdfast.gateway.status import STATUS_TOOL
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.tools import ParamHeader, Tool
from holdfast.wire.strict_json import DECODE_ERRORS

_RESERVED = frozenset({STATUS_TOOL})


class OfferedTools:
    """A snapshot of the tools, by the names that the client uses."""

    def __init__(
        self,
        tools: Mapping[str, CatalogTool],
        param_headers: Mapping[str, tuple[ParamHeader, ...]],
        definitions: MergedList,
    ) -> None:
        self._tools = tools
        self._param_headers = param_headers
        self.definitions = definitions
        """The definitions of the tools, as the client gets them."""

    def first_names(self, count: int) -> list[str]:
        """The names of the first tools, as the client uses them."""
        return [*islice(self._tools, count)]

    def find(self, name: str) -> CatalogTool | None:
        return self._tools.get(name)

    @property
    def has_param_headers(self) -> bool:
        """Whether an argument of any tool must be repeated in a header."""
        return bool(self._param_headers)

    def param_headers_of(self, name: str) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that an HTTP client must repeat in headers."""
        return self._param_headers.get(name, ())


def offer_steps(
    tools: Sequence[CatalogTool], *, is_bare: Callable[[str], bool], client_era: Era
) -> Generator[None, None, OfferedTools]:
    """Name the tools. Each `yield` ends a step of the work."""
    by_item: dict[ServerItem, CatalogTool] = {}
    for number, tool in enumerate(tools):
        if _is_usable(tool.definition):
            by_item[ServerItem(tool.server.name, tool.definition.name)] = tool
        if number % ITEMS_PER_STEP == 0:
            yield
    table: NameTable = yield from name_steps(by_item, is_bare=is_bare, reserved=_RESERVED)
    offered: dict[str, CatalogTool] = {}
    param_headers: dict[str, tuple[ParamHeader, ...]] = {}
    definitions: list[Raw] = []
    for name, item in table.by_name.items():
        tool = offered[name] = by_item[item]
        if headers := param_headers_of(tool.definition):
            param_headers[name] = headers
        definition = _definition_for_client(tool.definition, name, client_era)
        definitions.append(Raw(msgspec.json.encode(definition)))
        yield
    return OfferedTools(offered, param_headers, (yield from merge_steps(definitions)))


class _TaskSupport(msgspec.Struct):
    task_support: str = msgspec.field(default="", name="taskSupport")


def _is_usable(tool: Tool) -> bool:
    """Whether the client can use the tool: the gateway does not pass on the tasks that some tools require."""
    if isinstance(tool.execution, UnsetType):
        return True
    try:
        return msgspec.json.decode(tool.execution, type=_TaskSupport).task_support != "required"
    except DECODE_ERRORS:
        return True


def _definition_for_client(tool: Tool, name: str, client: Era) -> Tool:
    """The definition as the client gets it. In the handshake era, output schemas must describe objects."""
    output = tool.output_schema
    if client is Era.HANDSHAKE and not isinstance(output, UnsetType) and not _describes_object(output):
        output = UNSET
    return msgspec.structs.replace(tool, name=name, output_schema=output)


class _Schema(msgspec.Struct):
    type: Raw = Raw()


def _describes_object(schema: Raw) -> bool:
    try:
        return bytes(msgspec.json.decode(schema, type=_Schema).type) == b'"object"'
    except DECODE_ERRORS:
        return False
