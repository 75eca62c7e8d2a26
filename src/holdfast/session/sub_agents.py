"""Runs a sub-agent: an agent with a fresh history, whose answer is the result of its parent's call."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import structs

from holdfast.agent.model.model_agent import ModelAgent
from holdfast.agent.model.turn_limits import TurnTotal
from holdfast.connect.call import ToolResult, failed_result
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.scope import enter_scope
from holdfast.model import codes
from holdfast.model.agent_definition import AgentDefinition
from holdfast.model.budget_limits import NO_LIMITS, BudgetLimits
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ModelResponded, Origin, Outcome, StopReason
from holdfast.model.ids import new_agent_id
from holdfast.model.permission import lowest_mode
from holdfast.model.server import CREATE_SESSION, DELEGATE
from holdfast.model.tool_pattern import ToolPattern
from holdfast.session.budget import BudgetShare, TimeUsedUpError
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.session_spans import add_turn_attributes
from holdfast.session.turn_context import SessionTurnContext
from holdfast.tracing import Span
from holdfast.wire.call_arguments import Arguments

if TYPE_CHECKING:
    from holdfast.session.session import Session

_MAX_RESULT = 50_000  # characters of the last message that the parent's call returns


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgentTask:
    """The task of a sub-agent, and the limits on what the sub-agent may use."""

    text: str
    parent_call: str
    """The id of the parent's call, whose result is the answer."""
    definition: AgentDefinition | None = None
    tools: tuple[ToolPattern, ...] | None = None
    """The tools of the session that the sub-agent may use; None: all that its definition allows."""
    budget: BudgetLimits = NO_LIMITS
    total: TurnTotal = field(default_factory=TurnTotal)
    """What the parent's turn has used, including all its sub-agents."""
    parent: "SubAgentContext | None" = field(default=None, compare=False, repr=False)
    """The sub-agent that starts this one, and whose limits apply to it; None if the session's own agent starts it."""
    depth: int = 1
    """How many agents are above the sub-agent."""
    can_spawn: bool = False
    """Whether the sub-agent may start other sub-agents."""
    parent_span: Span | None = None
    """The span of the parent's call; None if tracing is off."""


def reserve_sub_agent(session: "Session", task: SubAgentTask) -> BudgetShare:
    """Reserve the budget of a new sub-agent. Raise if there are too many sub-agents, or too little of the budget is left. The caller must end the share."""
    budget = session.budget if task.parent is None else task.parent.share
    return budget.start_sub_agent(_budget_limits(task))


async def run_sub_agent(session: "Session", task: SubAgentTask, share: BudgetShare) -> str:
    """Run a sub-agent in this session, and return its last message.

    Its calls and messages are stored as events of the session, with its id and the id of the parent's call.
    """
    name = task.definition.name if task.definition is not None else "agent"
    origin = Origin(agent=new_agent_id(name), parent_call=task.parent_call)
    context = session.new_sub_agent_context(origin)
    context.restrict(task, share)
    session.sub_agents[origin.agent] = context
    try:
        async with share.limit_time():
            with enter_scope(session.scope), _trace(session, origin, name, task.parent_span) as span:
                reason = await session.agent.run_turn([{"type": "text", "text": task.text}], context)
                if span is not None:
                    add_turn_attributes(span, reason, {})
    except TimeUsedUpError as error:
        return f"{context.answer}\n({error.message})"
    finally:
        del session.sub_agents[origin.agent]
        await run_to_completion(_end(session, context, task))
    if reason is not StopReason.END_TURN:
        return f"{context.answer}\n(The sub-agent ended early: {reason}.)"
    return context.answer or "(The sub-agent ended without an answer.)"


async def _end(session: "Session", context: "SubAgentContext", task: SubAgentTask) -> None:
    """Store the end of the sub-agent's last message, and the usage that is in no stored model response."""
    await session.record.messages.end_agent(context.origin)
    if context.usage:
        session_model = session.agent.chosen_model if isinstance(session.agent, ModelAgent) else ""
        model = (task.definition.model if task.definition is not None else "") or session_model
        await context.add_model_event(ModelResponded(model=model, message={}, usage=context.usage))


def _trace(
    session: "Session", origin: Origin, name: str, parent: Span | None
) -> AbstractContextManager[Span | None]:
    return nullcontext() if session.spans is None else session.spans.sub_agent(origin, name, parent)


class SubAgentContext(SessionTurnContext):
    """The turn of a sub-agent. It has only some of the session's tools, and keeps the last message, which is the answer."""

    share: BudgetShare
    """The sub-agent's share of the budget. `restrict` sets it."""

    def __init__(self, *arguments: Any, origin: Origin) -> None:
        super().__init__(*arguments)
        self.origin = origin
        self._task: SubAgentTask | None = None
        self._last: list[str] = []
        self._size = 0
        self._is_new_message = True

    @property
    def depth(self) -> int:
        """How many agents are above the sub-agent."""
        return 0 if self._task is None else self._task.depth

    @property
    def answer(self) -> str:
        """The text of the last message."""
        return "".join(self._last)

    def restrict(self, task: SubAgentTask, share: BudgetShare) -> None:
        """Narrow what the sub-agent may use. Call this once, before it starts."""
        self._task = task
        self.total = task.total
        self.budget = self.share = share
        self.definition = task.definition
        if task.definition is not None:
            self.max_mode = task.definition.mode
        if task.parent is not None:
            self.max_mode = lowest_mode(self.max_mode, task.parent.max_mode)

    def begin_message(self) -> None:
        super().begin_message()
        self._is_new_message = True

    async def reply(self, text: str) -> None:
        if text and self._is_new_message:
            self._is_new_message, self._last, self._size = False, [], 0
        if self._size < _MAX_RESULT:
            self._last.append(text[: _MAX_RESULT - self._size])
            self._size += len(text)
        await super().reply(text)

    async def tools(self) -> tuple[CatalogTool, ...]:
        return tuple(
            tool for tool in await super().tools() if self.allows(tool.server.name, tool.definition.name)
        )

    async def call(self, name: str, arguments: Arguments | None = None, *, call_id: str = "") -> ToolResult:
        await self._servers.start_unknown()
        tool = next((tool for tool in self._servers.tools if name in (tool.name, tool.model_name)), None)
        # The tools of a server that is still starting are not known. Only a sub-agent that may use all tools waits for them.
        is_allowed = (
            self._may_use_all if tool is None else self.allows(tool.server.name, tool.definition.name)
        )
        if not is_allowed:
            error = HoldfastError(codes.NOT_PERMITTED, f"{name} is not among the tools of this sub-agent.")
            return structs.replace(failed_result(error), outcome=Outcome.REFUSED)
        return await super().call(name, arguments, call_id=call_id)

    def allows(self, server: str, tool: str) -> bool:
        """Whether the sub-agent may use a tool: its parent, its definition and its task must allow the tool."""
        task = self._task
        # A session that the sub-agent created would have all rights of the session, not only those of the sub-agent.
        if task is None or (server, tool) == CREATE_SESSION:
            return False
        if (server, tool) == DELEGATE and not task.can_spawn:
            return False
        if task.parent is not None and not task.parent.allows(server, tool):
            return False
        if task.definition is not None and not task.definition.allows(server, tool):
            return False
        return task.tools is None or any(pattern.matches(server, tool) for pattern in task.tools)

    @property
    def _may_use_all(self) -> bool:
        task = self._task
        if task is None or task.definition is not None or task.tools is not None:
            return False
        return task.parent is None or task.parent._may_use_all


def _budget_limits(task: SubAgentTask) -> BudgetLimits:
    """The budget of a sub-agent: the lower of the one in the call and the one in the definition."""
    return task.budget if task.definition is None else task.budget.lowest(task.definition.budget)
