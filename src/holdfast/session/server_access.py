"""The part of `Session` that is about its servers: which there are, and their tools, resources and prompts."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Unpack, cast

from holdfast.connect.catalog import CatalogTool
from holdfast.connect.connection import ForwardOptions
from holdfast.model import codes
from holdfast.model.check_loop import OwnLoop
from holdfast.model.errors import HoldfastError
from holdfast.model.parse_text import bad_type, parse_text
from holdfast.model.resolution import Refusal, SessionWarning
from holdfast.model.server import ServerSpec
from holdfast.resolve.screen_tools import ToolWithoutHints, WithheldTool
from holdfast.session.calls import Calls
from holdfast.session.servers import Servers
from holdfast.wire.mcp.client import ServerInfo
from holdfast.wire.messages import Raw


class ServerAccess:
    """The servers, tools, resources and prompts of a session. `Session` inherits this class."""

    _servers: Servers
    _calls: Calls
    _own_loop: OwnLoop
    _close_task: asyncio.Task[None] | None

    @property
    def is_closing(self) -> bool:
        """Whether the session is being closed, or is closed."""
        return self._close_task is not None

    def _check_open(self) -> None:
        self._own_loop.check("session")
        if self.is_closing:
            raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")

    @property
    def available(self) -> tuple[str, ...]:
        """The servers whose tools can be called."""
        return self._servers.available

    @property
    def ended(self) -> tuple[str, ...]:
        """The available servers whose process or connection has ended. The next call starts them again, except those in `restart_errors`."""
        return self._servers.ended

    @property
    def restart_errors(self) -> Mapping[str, str]:
        """By server that keeps failing and is not started again yet: the error that a call to it would get now."""
        return self._servers.restart_errors

    @property
    def starting(self) -> tuple[str, ...]:
        return self._servers.starting

    @property
    def not_started(self) -> tuple[str, ...]:
        """The lazy servers that nothing has needed yet."""
        return self._servers.not_started

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The servers that the session did not get, and why."""
        return self._servers.refusals

    @property
    def needing_login(self) -> tuple[str, ...]:
        """The remote servers that were refused because the user must log in first."""
        return self._servers.needing_login

    @property
    def warnings(self) -> tuple[SessionWarning, ...]:
        """Warnings about the entries of servers that were not refused, and about the definitions of their tools."""
        return self._servers.warnings

    @property
    def awaiting_approval(self) -> Mapping[str, tuple[WithheldTool, ...]]:
        """The tools that await approval, by server."""
        return self._servers.awaiting_approval

    @property
    def offered_without_hints(self) -> Mapping[str, tuple[ToolWithoutHints, ...]]:
        """By server: the tools whose hints and titles are withheld, because no person approved their definitions."""
        return self._servers.offered_without_hints

    @property
    def listed_names(self) -> Mapping[str, frozenset[str] | None]:
        """The names of all tools that each server has listed, including those that the session does not offer. None: not known."""
        return self._servers.listed_names

    @property
    def available_tools(self) -> tuple[CatalogTool, ...]:
        """The tools of the servers that are available now."""
        return self._servers.tools

    async def tools(self) -> tuple[CatalogTool, ...]:
        """Wait until every server is available or has failed, then return every tool that the session may call.

        A lazy server is started only if its tools are not known.
        """
        self._check_open()
        await self._servers.wait_listed()
        self._check_open()
        return self.available_tools

    def server(self, name: str) -> ServerSpec:
        """The spec of one of the session's servers."""
        return self._servers.spec(parse_text("server", name))

    async def wait_ready(self) -> None:
        """Wait until every server that was started is available or has failed; each has a timeout."""
        await self._servers.wait_ready()

    async def wait_ready_and_store(self) -> None:
        """Like `wait_ready`, then store which servers are available and which were refused."""
        await self._servers.wait_ready_and_store()

    async def stored_refusals(self) -> tuple[Refusal, ...]:
        """The refusals that are stored. If some are being stored now, wait for that."""
        return await self._servers.stored_refusals()

    def refresh_tools(self, server: str) -> None:
        """List and screen a server's tools again."""
        self._servers.refresh_tools(server)

    async def update_servers(self, *, screen_again: bool = True) -> None:
        """Resolve the servers again: start those that are new, changed or failed, and end those that are gone.

        With `screen_again`, list and screen the tools of the kept servers again.
        """
        await self._servers.update(screen_again=screen_again)

    @property
    def servers(self) -> tuple[ServerSpec, ...]:
        """The servers that the session was given, in their configured order. Some may have failed to start."""
        return self._servers.specs

    async def server_info(self, server: str) -> ServerInfo:
        """What a server reports about itself. Starts the server if it is not running."""
        self._check_open()
        _, connection = await self._servers.connection(parse_text("server", server))
        return connection.server_info

    def on_tools_listed(self, callback: Callable[[], None]) -> None:
        """Call a function whenever a server's tools were listed."""
        self._servers.on_listed.append(callback)

    def on_servers_changed(self, callback: Callable[[], None]) -> None:
        """Call a function whenever the session's servers have changed and the new ones have started."""
        self._servers.on_changed.append(callback)

    async def forward(
        self, server: str, method: str, params: Mapping[str, Any], **options: Unpack[ForwardOptions]
    ) -> Raw:
        """Send a request of the session's client to a server, if it is permitted. Nothing is recorded: use `perform` for calls."""
        return await self._calls.forward(server, method, params, **options)

    async def notify_server(self, server: str, method: str, params: Raw) -> None:
        """Send a server a notification of the session's client."""
        await self._servers.notify(server, method, params)

    async def list_resources(self, server: str) -> list[dict[str, Any]]:
        self._check_open()
        return await self._calls.list_all(parse_text("server", server), "resources/list", "resources")

    async def read_resource(self, server: str, uri: str) -> dict[str, Any]:
        self._check_open()
        params = {"uri": parse_text("uri", uri)}
        return await self._calls.request(parse_text("server", server), "resources/read", params)

    async def list_prompts(self, server: str) -> list[dict[str, Any]]:
        self._check_open()
        return await self._calls.list_all(parse_text("server", server), "prompts/list", "prompts")

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Get one of a server's prompts, filled in with the arguments."""
        self._check_open()
        if arguments is not None and not isinstance(cast("object", arguments), Mapping):
            raise bad_type("arguments", "a dictionary", arguments)
        params = {"name": parse_text("name", name), "arguments": dict(arguments or {})}
        return await self._calls.request(parse_text("server", server), "prompts/get", params)
