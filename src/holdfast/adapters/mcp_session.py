"""One server of a session, with the methods and results of the MCP SDK's `ClientSession`."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec
from mcp import MCPError, types
from msgspec import UNSET

from holdfast.connect.catalog import CatalogTool
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.session.session import Session
from holdfast.wire.mcp.listed_items import clean_page
from holdfast.wire.messages import PeerError

ProgressFunction = Callable[[float, float | None, str | None], Awaitable[None]]


class ClientSessionAdapter:
    """For code that expects a `ClientSession`. The Holdfast session owns the connection to the server.

    If a call is refused or fails, `call_tool` returns a result with `is_error`. All other `HoldfastError`s of the methods are raised as the SDK's
    `MCPError`, also those of a closed session. Methods of a `ClientSession` that are not defined here are not supported.
    """

    def __init__(self, session: Session, server: str) -> None:
        session.server(server)  # raises if the session has no such server
        self._session = session
        self._server = server
        self.initialize_result: types.InitializeResult | None = None
        """What the server reported about itself; None before `initialize`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Leave the server running: it belongs to the session."""

    async def initialize(self) -> types.InitializeResult:
        """Wait until the session's servers have started or failed; return what this one reported about itself. The host has done the handshake."""
        with _as_sdk_errors():
            await self._session.wait_ready()
            info = await self._session.server_info(self._server)
        server: JsonObject = {"name": info.server.name, "version": info.server.version}
        self.initialize_result = types.InitializeResult.model_validate(
            {
                "protocolVersion": info.version,
                "capabilities": info.capabilities,
                "serverInfo": server,
                "instructions": info.instructions or None,
            }
        )
        return self.initialize_result

    @property
    def server_info(self) -> types.Implementation | None:
        """The name and version of the server; None before `initialize`."""
        return None if self.initialize_result is None else self.initialize_result.server_info

    @property
    def server_capabilities(self) -> types.ServerCapabilities | None:
        """What the server supports; None before `initialize`."""
        return None if self.initialize_result is None else self.initialize_result.capabilities

    @property
    def instructions(self) -> str | None:
        """The server's instructions; None before `initialize`, or if there are none."""
        return None if self.initialize_result is None else self.initialize_result.instructions

    @property
    def protocol_version(self) -> str | None:
        """The version of MCP that the host and the server use; None before `initialize`."""
        return None if self.initialize_result is None else str(self.initialize_result.protocol_version)

    async def send_ping(self) -> types.EmptyResult:
        """Return at once. The host notices by itself if the server ends."""
        return types.EmptyResult()

    async def list_tools(
        self, cursor: str | None = None, *, params: types.PaginatedRequestParams | None = None
    ) -> types.ListToolsResult:
        """The server's tools that the session may call, on one page."""
        with _as_sdk_errors():
            offered = await self._session.tools()
        return types.ListToolsResult(
            tools=[_describe(tool) for tool in offered if tool.server.name == self._server]
        )

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        read_timeout_seconds: float | timedelta | None = None,
        progress_callback: ProgressFunction | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
    ) -> types.CallToolResult:
        """Call a tool by its name on the server, without the prefix of the server."""
        seconds = (
            read_timeout_seconds.total_seconds()
            if isinstance(read_timeout_seconds, timedelta)
            else read_timeout_seconds
        )
        with _as_sdk_errors():
            result = await self._session.call(
                f"{self._server}.{name}",
                arguments,
                timeout=seconds,
                on_progress=None if progress_callback is None else _progress(progress_callback),
                meta=None if meta is None else dict(meta),
            )
        members: JsonObject = {"content": [*result.content], "isError": not result.ok}
        if result.data is not None:
            members["structuredContent"] = result.data
        if result.result.meta:
            members["_meta"] = result.result.meta
        return types.CallToolResult.model_validate(members)

    async def list_resources(
        self, cursor: str | None = None, *, params: types.PaginatedRequestParams | None = None
    ) -> types.ListResourcesResult:
        """The server's resources, on one page."""
        with _as_sdk_errors():
            resources = await self._session.list_resources(self._server)
        return types.ListResourcesResult.model_validate({"resources": resources})

    async def read_resource(self, uri: Any) -> types.ReadResourceResult:
        with _as_sdk_errors():
            result = await self._session.read_resource(self._server, str(uri))
        return types.ReadResourceResult.model_validate(result)

    async def list_resource_templates(
        self, *, params: types.PaginatedRequestParams | None = None
    ) -> types.ListResourceTemplatesResult:
        members = {} if params is None else params.model_dump(mode="json", by_alias=True, exclude_none=True)
        with _as_sdk_errors():
            raw = await self._session.forward(self._server, "resources/templates/list", members)
            page = clean_page(raw, "resourceTemplates")
        return types.ListResourceTemplatesResult.model_validate_json(bytes(page))

    async def complete(
        self,
        ref: types.ResourceTemplateReference | types.PromptReference,
        argument: dict[str, str],
        context_arguments: dict[str, str] | None = None,
    ) -> types.CompleteResult:
        """Values that an argument of a prompt or of a resource template may have."""
        params: JsonObject = {"ref": ref.model_dump(mode="json", by_alias=True), "argument": {**argument}}
        if context_arguments is not None:
            params["context"] = {"arguments": {**context_arguments}}
        with _as_sdk_errors():
            raw = await self._session.forward(self._server, "completion/complete", params)
        return types.CompleteResult.model_validate_json(bytes(raw))

    if not TYPE_CHECKING:  # with it, a type checker would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            offered = [known for known in dir(type(self)) if not known.startswith("_")]
            raise AttributeError(
                f"client_session has no {name!r}. It has: {', '.join(offered)}. For the rest, connect with the MCP SDK.",
                name=name,
                obj=self,
            )

    async def list_prompts(
        self, cursor: str | None = None, *, params: types.PaginatedRequestParams | None = None
    ) -> types.ListPromptsResult:
        """The server's prompts, on one page."""
        with _as_sdk_errors():
            prompts = await self._session.list_prompts(self._server)
        return types.ListPromptsResult.model_validate({"prompts": prompts})

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> types.GetPromptResult:
        """A prompt of the server, filled in."""
        with _as_sdk_errors():
            result = await self._session.get_prompt(self._server, name, arguments)
        return types.GetPromptResult.model_validate(result)


@contextmanager
def _as_sdk_errors() -> Iterator[None]:
    """Raise the SDK's error instead of Holdfast's. Its `data` has Holdfast's code and hint."""
    try:
        yield
    except HoldfastError as error:
        sent_code = error.rpc_code if isinstance(error, PeerError) else error.details.get("rpc_code")
        rpc_code = sent_code if isinstance(sent_code, int) else error.code.rpc_code
        raise MCPError(rpc_code, error.message, {"code": error.code.name, "hint": error.hint}) from error


def _describe(tool: CatalogTool) -> types.Tool:
    members: JsonObject = {
        "name": tool.definition.name,
        "description": tool.description,
        "inputSchema": {"type": "object", **tool.schema},
    }
    if tool.definition.title:
        members["title"] = tool.definition.title
    if tool.output_schema is not None:
        members["outputSchema"] = tool.output_schema
    if tool.definition.annotations is not UNSET:
        members["annotations"] = msgspec.json.decode(tool.definition.annotations)
    return types.Tool.model_validate(members)


def _progress(function: ProgressFunction) -> Callable[[Mapping[str, Any]], Awaitable[None]]:
    """A function that passes the params of a progress notification on, as the SDK does."""

    async def report(params: Mapping[str, Any]) -> None:
        await function(params.get("progress", 0.0), params.get("total"), params.get("message"))

    return report
