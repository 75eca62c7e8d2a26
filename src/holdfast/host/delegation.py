"""Runs the sub-agents that the agents of a host's sessions start: which definition each has, and in which session it runs."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.agent.model.turn_limits import TurnTotal
from holdfast.builtin.call_facts import CallFacts
from holdfast.host.agent_definitions import AgentDefinitions
from holdfast.host.live_sessions import LiveSessions
from holdfast.host.open_options import inherit_options
from holdfast.host.opening import Opener
from holdfast.model import codes
from holdfast.model.agent_definition import AgentDefinition
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.tool_pattern import ToolPattern, parse_tool_patterns
from holdfast.session.budget import BudgetShare
from holdfast.session.parent_door import ParentDoor
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.session import Session
from holdfast.session.sub_agent_events import mirror_events
from holdfast.session.sub_agents import SubAgentTask, reserve_sub_agent, run_sub_agent

if TYPE_CHECKING:
    from holdfast.builtin.agents.tools import Delegation

TOO_DEEP_HINT = "Do the work without starting another agent."


class Delegator:
    """Runs the sub-agents of one host's sessions."""

    opener: Opener
    """Opens the sessions of isolated sub-agents. `compose` sets it later, because the opener is made after the tools of sessions."""

    def __init__(self, live: LiveSessions, definitions: AgentDefinitions, max_depth: int) -> None:
        self._live = live
        self._definitions = definitions
        self._max_depth = max_depth

    async def run(self, caller: SessionId, facts: CallFacts, delegation: "Delegation") -> str:
        """Run a sub-agent of the calling session, and return its last message."""
        session = self._live.require(caller)
        parent = session.sub_agents.get(facts.agent)
        depth = depth_of(session) if parent is None else parent.depth
        if facts.agent and parent is None:
            raise HoldfastError(codes.NOT_PERMITTED, "The sub-agent that made this call has ended.")
        if depth >= self._max_depth:
            raise HoldfastError(
                codes.TOO_MANY_CHILDREN,
                f"The setting agents.max_depth allows {self._max_depth} levels of agents below the user's own, and this agent is"
                " on the last one.",
                hint=TOO_DEEP_HINT,
            )
        task = SubAgentTask(
            text=delegation.task,
            parent_call=facts.call_id,
            definition=await self._definition(session, delegation.agent),
            tools=None if delegation.tools is None else await _patterns(session, delegation.tools),
            budget=delegation.budget,
            total=session.turn_total if session.is_busy else TurnTotal(),
            parent=parent,
            depth=depth + 1,
            can_spawn=depth + 1 < self._max_depth,
            parent_span=None if session.spans is None else session.spans.find_call(facts.call_id),
        )
        share = reserve_sub_agent(session, task)  # before a session is opened, which starts servers
        try:
            if not delegation.isolated:
                return await run_sub_agent(session, task, share)
            return await self._run_isolated(session, task, share, delegation)
        finally:
            share.end()

    async def _run_isolated(
        self, session: Session, task: SubAgentTask, share: BudgetShare, delegation: "Delegation"
    ) -> str:
        """Run a sub-agent in a session of its own, which is closed at the end."""
        outer = self._live.options_of(session)
        options = inherit_options({"title": delegation.agent or "sub-agent"}, session, outer)
        door = ParentDoor(session.doors, options.title)
        isolated = await self.opener.open(replace(options, opened_by=outer.opened_by, door=door))
        mirroring = asyncio.create_task(mirror_events(isolated.subscribe(), session))
        try:
            await isolated.wait_ready()
            return await run_sub_agent(isolated, task, share)
        finally:
            await isolated.close("the sub-agent ended")
            await run_to_completion(mirroring)  # it ends because the session is closed

    def can_delegate(self, session: Session) -> bool:
        """Whether the session's agent may start a sub-agent now. If not, it does not see the tool."""
        budget = session.budget
        return depth_of(session) < self._max_depth and budget.sub_agents < budget.max_sub_agents

    async def _definition(self, session: Session, name: str) -> AgentDefinition | None:
        return await self._definitions.require(name, session.context.cwd) if name else None


def depth_of(session: Session) -> int:
    """How many sessions are above this one: its parent, the parent's parent, and so on."""
    depth, parent = 0, session.parent
    while parent is not None:
        depth, parent = depth + 1, parent.parent
    return depth


async def _patterns(session: Session, tools: tuple[str, ...]) -> tuple[ToolPattern, ...]:
    """The patterns of the tools that a sub-agent gets. A model may also write a tool's name as it sees it, such as `files__read`."""
    exact = {
        tool.model_name: ToolPattern(server=(tool.server.name,), tool=(tool.definition.name,))
        for tool in await session.tools()
    }
    try:
        return tuple(exact[text] if text in exact else parse_tool_patterns([text])[0] for text in tools)
    except ValueError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"`tools` {error}.") from None
