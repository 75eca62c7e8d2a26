"""One live session: its servers, calls, turns, events, permission policy and attached doors."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from holdfast.agent.agent import Agent
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.scope import Scope
from holdfast.connect.server_messages import OnProgress
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.ids import new_call_id, new_message_id
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.model.resolution import Refusal, Resolution, SessionWarning
from holdfast.model.server import ServerSpec
from holdfast.resolve.screen_tools import ToolWithoutHints, WithheldTool
from holdfast.session.attachment import Attachment
from holdfast.session.calls import Calls, encode_arguments
from holdfast.session.doors import Doors
from holdfast.session.opening_events import OpeningEvents
from holdfast.session.permission import PermissionPolicy
from holdfast.session.permission_rules import NO_RULES, PermissionRules
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.servers import ServerDeps, Servers
from holdfast.session.subscription import Subscription
from holdfast.session.turn_context import SessionTurnContext
from holdfast.session.turns import Prompt, TurnResult, Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """How a session answers prompts and decides about calls."""

    agent: Agent
    mode: Mode = Mode.ASK
    rules: PermissionRules = NO_RULES
    wait_seconds: float = 0.0
    """How long a question waits for a door that can answer it."""
    has_title: bool = False
    parent: "Session | None" = None
    """The session that this one was started in. This one never gets more rights, even if those of the parent get lower."""


class Session:
    """One live session. Any task may use it; `close` closes it for every attached door."""

    def __init__(
        self,
        scope: Scope,
        resolution: Resolution,
        record: Record,
        deps: ServerDeps,
        config: SessionConfig,
        resources: AsyncExitStack,
    ) -> None:
        """`resources` undoes what the host set up for the session, such as its hold. It is exited at the end of `close`."""
        self.scope = scope
        self.record = record
        """Where the session's events are written."""
        self.doors = Doors(record.events, wait_seconds=config.wait_seconds)
        """The attached doors."""
        self._parent = config.parent
        self._children: set[Session] = set()
        if self._parent is not None:
            self._parent._children.add(self)
        self.permission = PermissionPolicy(
            record,
            self.doors,
            config.rules,
            mode=config.mode,
            parent=None if self._parent is None else self._parent.permission,
        )
        """Decides whether calls may run. It also has the mode and the remembered answers."""
        self.opener_has_left = False
        """Whether the editor that opened the session left while others were attached. The last of them closes the session."""
        self._servers = Servers(scope, resolution, record, deps)
        self._calls = Calls(self._servers, record, self.permission, deps)
        self._turns = Turns(scope, record, config.agent, self._new_turn_context, has_title=config.has_title)
        self._links = deps.links
        self._resources = resources
        self._closing: asyncio.Task[None] | None = None
        scope.door = self.doors

    @property
    def context(self) -> SessionContext:
        """The session's id, trust, workspace and folders."""
        return self.scope.context

    @property
    def agent(self) -> Agent:
        """The agent that answers the prompts."""
        return self._turns.agent

    @agent.setter
    def agent(self, agent: Agent) -> None:
        self._turns.agent = agent

    async def open(self, first: OpeningEvents, *, stored_seq: int | None) -> None:
        """Store the first events, then start all servers at once; `wait_ready` waits for them.

        If the first events are already stored, `stored_seq` is the number of the last one.
        """
        if stored_seq is None:
            await self.record.add_together(*first.events)
        else:
            self.record.events.advance(stored_seq)
        self._servers.start(first.resolved)

    # Doors, prompts and events

    def attach(self, door: Door, *, may_answer: bool = True) -> Attachment:
        """Attach a door. With `may_answer`, it is asked the session's questions that it can answer."""
        attached = self.doors.attach(door, may_answer=may_answer)
        return Attachment(attached, self.doors, self.record.events, self._turns)

    def subscribe(self, after: int = 0) -> Subscription:
        """All events after this number: first those that are already stored, then each new one."""
        return self.record.events.subscribe(after)

    async def prompt(self, blocks: Sequence[JsonObject]) -> TurnResult:
        """Let the agent answer a prompt, after those that are already waiting. Returns when the whole answer is stored."""
        return await self._turns.run(Prompt(blocks=blocks, message_id=new_message_id()))

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running or waiting."""
        return self._turns.is_busy

    def cancel(self) -> None:
        """Cancel the running turn and all waiting prompts."""
        self._turns.cancel()

    # Calls

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: JsonObject | None = None,
    ) -> ToolResult:
        """Call `server.tool`. The result is stored before it is returned. A refusal or a failure is returned as a result, too."""
        # The server stays empty: the name contains it.
        tool_call = ToolCall(
            call_id=new_call_id(), server="", tool=name, arguments=encode_arguments(arguments), meta=meta
        )
        return await self._calls.perform(tool_call, timeout=timeout, on_progress=on_progress)

    async def perform(
        self, tool_call: ToolCall, *, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> ToolResult:
        """Make a tool call, if the session's permission policy allows it.

        `tool_call.tool` is the full name, `server.tool`. `tool_call.server` is not used to find the tool.
        """
        return await self._calls.perform(tool_call, timeout=timeout, on_progress=on_progress)

    # Servers

    @property
    def available(self) -> tuple[str, ...]:
        """The servers whose tools can be called."""
        return self._servers.available

    @property
    def starting(self) -> tuple[str, ...]:
        return self._servers.starting

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every server that the session did not get, and why."""
        return self._servers.refusals

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
        """By server: the tools whose hints and titles are withheld, because no person approved the tools' definitions."""
        return self._servers.offered_without_hints

    @property
    def available_tools(self) -> tuple[CatalogTool, ...]:
        """The tools of the servers that are available now."""
        return self._servers.tools

    async def tools(self) -> tuple[CatalogTool, ...]:
        """Wait until every server is available or has failed, then return every tool that the session may call."""
        await self.wait_ready()
        return self.available_tools

    def server(self, name: str) -> ServerSpec:
        """The spec of one of the session's servers."""
        return self._servers.spec(name)

    async def wait_ready(self) -> None:
        """Wait until every server is available or has failed; each has a timeout."""
        await self._servers.wait_ready()

    async def wait_ready_and_store(self) -> None:
        """Like `wait_ready`, then store which servers are available and which were refused."""
        await self._servers.wait_ready_and_store()

    async def stored_refusals(self) -> tuple[Refusal, ...]:
        """The refusals that are stored. If some are being stored now, wait for that."""
        return await self._servers.stored_refusals()

    def refresh_tools(self, server: str) -> None:
        """List and screen a server's tools again, as they may have changed."""
        self._servers.refresh_tools(server)

    async def list_resources(self, server: str) -> list[dict[str, Any]]:
        return await self._calls.list_all(server, "resources/list", "resources")

    async def read_resource(self, server: str, uri: str) -> dict[str, Any]:
        return await self._calls.request(server, "resources/read", {"uri": uri})

    async def list_prompts(self, server: str) -> list[dict[str, Any]]:
        return await self._calls.list_all(server, "prompts/list", "prompts")

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Get one of a server's prompts, filled in with the arguments."""
        return await self._calls.request(
            server, "prompts/get", {"name": name, "arguments": dict(arguments or {})}
        )

    async def lower_trust(self) -> None:
        """Make the session sandboxed, permanently: its links are closed, and the servers it may still use are restarted.

        The same happens to the sessions that were started in it.
        """
        inside = [*self._sessions_inside()]
        for session in (self, *inside):
            session._servers.begin_lowering()
        # The servers of a session that is being closed are not started again.
        lowered = [self, *(session for session in inside if not session.is_closing)]
        lowering = (session._servers.lower_trust() for session in lowered)
        for result in await asyncio.gather(*lowering, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _sessions_inside(self) -> "Iterator[Session]":
        """The sessions that were started in this one, and those that were started in them."""
        for child in self._children:
            yield child
            yield from child._sessions_inside()

    # Closing

    @property
    def is_closing(self) -> bool:
        """Whether the session is being closed, or is closed."""
        return self._closing is not None

    async def close(self, reason: str = "closed") -> None:
        """Close the session for every door: end its turns, calls and links, and store its end. Another host may resume it.

        If the caller is cancelled, the session is closed before the cancellation is raised.
        """
        if self._closing is None:
            closing = self._close(reason, wait_for_turns=not self._turns.is_called_from_turn)
            self._closing = asyncio.create_task(closing, name=f"close {self.context.session_id}")
        await run_to_completion(self._closing)

    async def _close(self, reason: str, *, wait_for_turns: bool) -> None:
        async with self._resources:
            if self._parent is not None:
                self._resources.callback(self._parent._children.discard, self)
            await self._turns.close(wait=wait_for_turns)
            self._servers.cancel_listing()
            await self._links.close_scope(self.scope)
            await self._servers.stop_listing()
            # Calls on shared links, and calls that wait for the user, are still running.
            await self._calls.cancel_all()
            await self.record.close(reason, *await self._servers.unstored_events())

    def _new_turn_context(self) -> SessionTurnContext:
        return SessionTurnContext(self.record, self._servers, self._calls, self.permission)
