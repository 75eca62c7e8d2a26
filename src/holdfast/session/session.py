"""One live session: its servers, calls, turns, events, permission policy and attached doors."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

from holdfast.agent.agent import Agent
from holdfast.agent.model.model_agent import ModelAgent
from holdfast.agent.model.turn_limits import TurnTotal
from holdfast.connect.call import ToolResult
from holdfast.connect.scope import Scope
from holdfast.connect.server_messages import OnProgress
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.check_loop import OwnLoop
from holdfast.model.check_seconds import check_seconds
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError, advise_about_names
from holdfast.model.event import MAIN_AGENT_ORIGIN, Origin, Planned
from holdfast.model.ids import new_call_id, new_message_id
from holdfast.model.json import JsonObject
from holdfast.model.parse_text import bad_type, parse_text
from holdfast.model.permission import DoorKind
from holdfast.model.resolution import Resolution
from holdfast.model.visible_text import to_line
from holdfast.session.attachment import Attachment
from holdfast.session.budget import BudgetPool
from holdfast.session.callbacks import ProgressCallback, make_progress_queue, run_callback_on_loop
from holdfast.session.calls import Calls
from holdfast.session.child_sessions import ChildSessions
from holdfast.session.doors import Doors
from holdfast.session.mailbox import Mailbox
from holdfast.session.opening_events import OpeningEvents
from holdfast.session.permission import PermissionPolicy
from holdfast.session.project_instructions import ProjectInstructions
from holdfast.session.prompt_blocks import parse_prompt
from holdfast.session.prompted_turn import PromptedTurn
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion, wait_done
from holdfast.session.server_access import ServerAccess
from holdfast.session.server_deps import ServerDeps
from holdfast.session.servers import Servers
from holdfast.session.session_config import SessionConfig
from holdfast.session.session_spans import SessionSpans
from holdfast.session.session_uses import SessionUse, SessionUses
from holdfast.session.sub_agents import SubAgentContext
from holdfast.session.subscription import Subscription
from holdfast.session.turn_context import SessionTurnContext
from holdfast.session.turns import Prompt, TurnResult, Turns
from holdfast.store.types import StoredEvent
from holdfast.wire.call_arguments import Arguments, encode_arguments, tool_name_type_error

log = logging.getLogger(__name__)

OTHER_NAMES = {
    "call_tool": 'await session.call("server.tool", {…})',
    "list_tools": "await session.tools()",
    "id": "session.context.session_id",
    "session_id": "session.context.session_id",
    "user_id": "session.context.user_id",
    "trust": "session.context.trust_level",
    "events": "session.subscribe()",
}
"""What to write instead of names that other libraries use."""


@advise_about_names(OTHER_NAMES)
class Session(ServerAccess):
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
        """`resources` is exited at the end of `close`."""
        self.scope = scope
        self.record = record
        self.doors = Doors(record.events, permission_wait=config.permission_wait)
        self._parent = config.parent
        self.children = ChildSessions()
        """The sessions that were started in this one."""
        self._watch_tasks: set[asyncio.Task[None]] = set()
        if self._parent is not None:
            self._parent.children.add(self)
        self.permission = PermissionPolicy(
            record,
            self.doors,
            config.rules,
            mode=config.mode,
            parent=None if self._parent is None else self._parent.permission,
        )
        """Decides whether calls may run. It has the mode and the remembered answers."""
        self.budget = BudgetPool(
            config.budget,
            max_sub_agents=config.max_sub_agents,
            parent=None if self._parent is None else self._parent.budget,
        )
        """What the session's agents may use together. The budget of a child session is a part of its parent's."""
        self.definition = config.definition
        """The definition of the session's agent, if it has one."""
        self.sub_agents: dict[str, SubAgentContext] = {}
        """The running sub-agents, by their ids."""
        self.turn_total = TurnTotal()
        """What the current or the last turn used, with all of its sub-agents."""
        self._can_spawn = config.can_spawn
        self.opener_has_left = False
        """Whether the editor that opened the session has left while other doors were attached."""
        self._servers = Servers(scope, resolution, record, deps)
        self.spans = (
            None
            if deps.tracer is None
            else SessionSpans(
                deps.tracer, scope.context, None if self._parent is None else self._parent.spans
            )
        )
        """Traces what the session does; None if tracing is off."""
        self._calls = Calls(self._servers, record.calls, self.permission, deps, self.spans)
        self.mailbox = Mailbox(record)
        self._turns = Turns(
            scope,
            record,
            config.agent,
            self._new_turn_context,
            has_title=config.has_title,
            mailbox=self.mailbox,
        )
        self._turns.on_cancel = self.children.start_closing_owned
        self._turns.before_messages = self._wait_for_servers
        self._server_wait_seconds = config.server_wait_seconds
        self._turns.spans = self.spans
        self._instructions = ProjectInstructions(scope, record, self.doors)
        self._links = deps.links
        self._resources = resources
        self._close_task: asyncio.Task[None] | None = None
        self._own_loop = OwnLoop()
        scope.door = self.doors
        self.uses = SessionUses()
        """The callers that opened or joined the session."""

    def watch(self, on_event: Callable[[StoredEvent], object], *, after: int = 0) -> None:
        """Pass every event after this number to a function, until the session is closed. `close` waits until the function has handled the last one."""
        events = self.subscribe(after)

        async def pass_on() -> None:
            async for stored in events:
                await run_callback_on_loop(on_event, stored)

        task = asyncio.create_task(pass_on(), name=f"on_event of {self.context.session_id}")
        self._watch_tasks.add(task)
        task.add_done_callback(self._watch_tasks.discard)

    def __repr__(self) -> str:
        state = "closed" if self.is_closing else "open"
        return f"<Session {self.context.session_id} {self.context.trust_level.value}, {state}>"

    async def __aenter__(self) -> Self:
        """Wait until the servers are available or refused. The end of the block closes the session.

        If other callers joined the session with `host.reopen`, the end of the last block closes it.
        """
        use = self.uses.begin_block()
        try:
            await self.wait_ready_and_store()
        except BaseException:
            await self._end_use(use)
            raise
        use.enter(self.scope)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        use = self.uses.end_block()
        if use is None:
            await self.close()
            return
        use.leave_block()
        await self._end_use(use)

    async def _end_use(self, use: SessionUse) -> None:
        if self.uses.remove(use):
            use.call_on_end()
        else:
            await self.close()

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
        """Store the first events, then start the servers that are not lazy; `wait_ready` waits for them.

        If the first events are already stored, `stored_seq` is the number of the last one.
        """
        if stored_seq is None:
            await self.record.add_together(*first.events)
        else:
            self.record.events.advance(stored_seq)
        self._servers.start(first.resolved)

    # Doors, prompts and events

    def attach(self, door: Door, *, may_answer: bool = True, kind: DoorKind | None = None) -> Attachment:
        """Attach a door. With `may_answer`, it may answer the session's questions.

        With `kind`, the mode cannot be raised above the limit for this kind of door while the door is attached.

        A door that is attached already keeps its one attachment and its right to answer.
        """
        if isinstance(door, type) or not hasattr(cast("object", door), "capabilities"):
            raise bad_type("door", "a holdfast.Door", door)
        attached = self.doors.attach(door, may_answer=may_answer, kind=kind)
        return Attachment(attached, self.doors, self.record.events, self._turns)

    def begin_use(self, door: Door | None, kind: DoorKind) -> None:
        """Add a caller that opened or joined the session, with its own door if it has one.

        The mode cannot be raised above the limit for this kind of caller until it has left.
        """
        if door is not None:
            self.uses.add(self.attach(door, kind=kind).detach)
            return
        self.doors.begin_without_door(kind)
        self.uses.add(partial(self.doors.end_without_door, kind))

    def subscribe(self, after: int = 0) -> Subscription:
        """All events after this number: first those that are already stored, then each new one."""
        if isinstance(after, bool) or not isinstance(cast("object", after), int):
            raise bad_type("after", "the number of an event", after)
        return self.record.events.subscribe(max(after, 0))

    def prompt(self, prompt: str | Sequence[JsonObject]) -> PromptedTurn:
        """Let the agent answer a prompt (a text or ACP content blocks), after the prompts that are already waiting.

        `await` the returned turn for its result, once the whole answer is stored. If the turn failed, the result has a `code`, and its
        `raise_for_error()` raises. Or iterate over the turn's events as they are stored: `async for event in session.prompt("…")`.
        """
        asked = Prompt(blocks=parse_prompt(prompt), message_id=new_message_id())
        events = self.record.events
        return PromptedTurn(self._answer(asked), lambda: events.subscribe(events.last), asked.message_id)

    async def _answer(self, prompt: Prompt) -> TurnResult:
        self._own_loop.check("session")
        result = await self._turns.run(prompt)
        # An internal error is already logged, with its traceback.
        if not result.ok and result.code != codes.INTERNAL_ERROR.name:
            # The reason is part of the message, because an application's log may show no fields.
            log.warning("turn failed: %s: %s", result.code, to_line(result.message))
        return result

    async def set_model(self, name: str) -> None:
        """Use another model from the next prompt on. Raise if it cannot be used."""
        self._check_open()
        agent = self.agent
        if not isinstance(agent, ModelAgent):
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "The application that opened the session answers its prompts, so the session has no model.",
            )
        await agent.set_model(parse_text("model", name))
        await self.record.keep_setting("model", name)

    async def publish_plan(self, entries: Sequence[JsonObject], agent: str = "") -> None:
        """Store a plan of the session's agent, or of the sub-agent with this id."""
        origin = MAIN_AGENT_ORIGIN if not agent else Origin(agent=agent)
        await self.record.append(Planned(entries=tuple(entries)), origin=origin)

    @property
    def parent(self) -> "Session | None":
        return self._parent

    async def title(self) -> str:
        session_id = self.context.session_id
        stored = await self.record.read(lambda tx: tx.session(session_id))
        return stored.title if stored is not None else ""

    def own_child(self, child: "Session") -> None:
        """Close this child when the session is closed or cancelled."""
        self.children.own(child)

    def on_closed(self, callback: Callable[[], object]) -> None:
        """Call a function once the session is closed."""
        self._resources.callback(callback)

    def deliver_messages(self) -> None:
        """Deliver the waiting messages of other sessions: in the running turn, or in a turn of their own."""
        self.mailbox.may_have_messages = True
        self._turns.start_inbox_turn()

    async def _wait_for_servers(self) -> None:
        """Wait a while for servers that are still starting, so that the model's first request has their tools."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._server_wait_seconds):
                await self._servers.wait_ready()

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running or waiting."""
        return self._turns.is_busy

    def cancel(self) -> None:
        """Cancel the running turn and all waiting prompts, and close the child sessions that end with this one (`own_child`)."""
        self._turns.cancel()

    # Calls

    async def call(
        self,
        name: str,
        arguments: Arguments | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: JsonObject | None = None,
    ) -> ToolResult:
        """Call `server.tool`. The result is stored before it is returned. A refusal or a failure is also returned as a result.

        `arguments` is a mapping, a dataclass or a pydantic model. `on_progress` may be sync or async.
        """
        self._own_loop.check("session")
        if not isinstance(cast("object", name), str):
            raise tool_name_type_error(name)
        # `server` stays empty, because `name` contains it.
        tool_call = ToolCall(
            call_id=new_call_id(), server="", tool=name, arguments=encode_arguments(arguments), meta=meta
        )
        check_seconds("timeout", timeout)
        receive, progress = make_progress_queue(on_progress)
        result = await self._calls.perform(tool_call, timeout=timeout, on_progress=receive)
        if progress is not None:
            await progress.wait()
        return result

    async def perform(
        self, tool_call: ToolCall, *, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> ToolResult:
        """Make a tool call, if the session's permission policy allows it. `tool_call.tool` is the full name, `server.tool`."""
        return await self._calls.perform(tool_call, timeout=timeout, on_progress=on_progress)

    def on_call_progress(self, callback: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Call a function with the call's id and the params of each progress notification, unless the call has its own `on_progress`."""
        self._calls.on_progress(callback)

    async def lower_trust(self) -> None:
        """Make the session and its child sessions sandboxed, permanently. Close their links, and restart the servers that they may still use."""
        descendants = [*self._descendants()]
        for session in (self, *descendants):
            session._servers.begin_lowering()
        # The servers of a session that is being closed are not started again.
        lowered = [self, *(session for session in descendants if not session.is_closing)]
        lowering = (session._servers.lower_trust() for session in lowered)
        for result in await asyncio.gather(*lowering, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _descendants(self) -> "Iterator[Session]":
        for child in self.children:
            yield child
            yield from child._descendants()

    # Closing

    async def close(self, reason: str = "closed") -> None:
        """Close the session for every door: end its turns, calls and links, and store its end.

        If the caller is cancelled, the session is closed before the cancellation is raised.
        """
        if self._own_loop.was_opened_before_fork:
            return  # the process that opened the session closes it
        self._own_loop.check("session")
        if self._close_task is None:
            closing = self._close(reason, wait_for_turns=not self._turns.is_called_from_turn)
            self._close_task = asyncio.create_task(closing, name=f"close {self.context.session_id}")
        await run_to_completion(self._close_task)
        own = asyncio.current_task()  # a function passed to `watch` may close the session
        for task in [task for task in self._watch_tasks if task is not own]:
            await run_to_completion(wait_done(task))

    async def _close(self, reason: str, *, wait_for_turns: bool) -> None:
        async with self._resources:
            if self._parent is not None:
                self._resources.callback(self._parent.children.remove, self)
            await self._turns.close(wait=wait_for_turns)
            await self.children.close_owned()
            self._servers.cancel_listing()
            await self._links.close_scope(self.scope)
            await self._servers.stop_listing()
            # Calls on shared links, and calls that wait for the user, are still running.
            await self._calls.cancel_all()
            await self.record.close(reason, *await self._servers.unstored_events())
            if self.spans is not None:
                self.spans.end()

    def _new_turn_context(self, turn_id: str) -> SessionTurnContext:
        context = SessionTurnContext(
            turn_id, self.record, self._servers, self._calls, self.permission, self._instructions
        )
        context.mailbox = self.mailbox
        context.budget = self.budget
        context.total = self.turn_total = TurnTotal()
        context.definition = self.definition
        context.can_spawn = partial(self._can_spawn, self)
        return context

    def new_sub_agent_context(self, origin: Origin) -> SubAgentContext:
        """The context for a turn of a sub-agent."""
        context = SubAgentContext(
            origin.agent, self.record, self._servers, self._calls, self.permission, origin=origin
        )
        context.can_spawn = partial(self._can_spawn, self)
        return context
