"""The tools that a client is offered, by the names that it uses for them."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.connect.catalog import CatalogTool
from holdfast.connect.http.param_headers import param_headers_of
from holdfast.gateway.names import ServerItem, build_names
from holdfast.gateway.status import STATUS_TOOL
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.tools import ParamHeader, Tool
from holdfast.wire.strict_json import DECODE_ERRORS

_RESERVED = frozenset({STATUS_TOOL})


class OfferedTools:
    """A snapshot of the tools, by the names that the client uses."""

    def __init__(
        self,
        tools: Sequence[CatalogTool],
        *,
        is_bare: Callable[[str], bool],
        client_era: Era,
    ) -> None:
        kept = [tool for tool in tools if _is_usable(tool.definition)]
        by_item = {ServerItem(tool.server.name, tool.definition.name): tool for tool in kept}
        table = build_names(by_item, is_bare=is_bare, reserved=_RESERVED)
        self._tools = {name: by_item[item] for name, item in table.by_name.items()}
        self._param_headers = {
            name: headers
            for name, tool in self._tools.items()
            if (headers := param_headers_of(tool.definition))
        }
        self._client_era = client_era

    @property
    def definitions(self) -> list[Raw]:
        """The definitions of the tools, as the client gets them."""
        return [
            Raw(msgspec.json.encode(_definition_for_client(tool.definition, name, self._client_era)))
            for name, tool in self._tools.items()
        ]

    @property
    def names(self) -> list[str]:
        """The names of the tools, as the client uses them."""
        return [*self._tools]

    def find(self, name: str) -> CatalogTool | None:
        return self._tools.get(name)

    @property
    def has_param_headers(self) -> bool:
        """Whether an argument of any tool must be repeated in a header."""
        return bool(self._param_headers)

    def param_headers_of(self, name: str) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that an HTTP client must repeat in headers."""
        return self._param_headers.get(name, ())


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
