"""The tool that gives a task to a sub-agent."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from holdfast import __version__
from holdfast.builtin.call_facts import CallFacts, read_call_facts
from holdfast.builtin.self_limited_tools import SELF_LIMITED_SECONDS
from holdfast.model import codes
from holdfast.model.budget_limits import BudgetLimits
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.meta_keys import KIND_KEY
from holdfast.toolkit.authentication import EnvironmentAuthenticator
from holdfast.toolkit.call import Call
from holdfast.toolkit.operation import Annotations
from holdfast.toolkit.toolbox import Toolbox
from holdfast.wire.mcp.server import Service

_MAX_TASK_CHARS = 50_000
_PositiveInt = Annotated[int, Meta(ge=1, le=10**9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """A task for a sub-agent, and what the sub-agent may use."""

    task: str
    agent: str = ""
    """The name of an agent definition; empty for none."""
    tools: tuple[str, ...] | None = None
    """Patterns of the tools that the sub-agent may use; None for all of the caller's."""
    budget: BudgetLimits
    isolated: bool = False
    """Whether the sub-agent gets a child session with servers of its own. Otherwise it shares the caller's session."""


Delegate = Callable[[SessionId, CallFacts, Delegation], Awaitable[str]]
"""Runs a sub-agent of a session, and returns its last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The argument `budget` of the tool, as a model sends it. None: no limit besides those of the caller."""

    tokens: _PositiveInt | None = None
    cents: _PositiveInt | None = None
    calls: _PositiveInt | None = None
    seconds: _PositiveInt | None = None


def agents_service(context: SessionContext, delegate: Delegate) -> Service:
    """Return the in-process server with the tool `delegate` for one session."""
    return agents_toolbox(context, delegate).server(EnvironmentAuthenticator(context))


def agents_toolbox(context: SessionContext, delegate: Delegate) -> Toolbox:
    """Return the toolbox with the tool `delegate` for one session."""
    box = Toolbox("agents", version=__version__)
    # A sub-agent may work for hours. Its budget limits its time.
    box.slow_after = box.deadline = SELF_LIMITED_SECONDS

    # A query, because queries need no permission: each call of the sub-agent is checked.
    @box.tool(
        name="delegate",
        title="Give a task to a sub-agent",
        operation="query",
        codes=[
            codes.TOO_MANY_CHILDREN.name,
            codes.BUDGET_EXHAUSTED.name,
            codes.UNKNOWN_AGENT.name,
            codes.NOT_APPROVED.name,
            codes.MODEL_UNAVAILABLE.name,
        ],
        meta={KIND_KEY: "think"},
        annotations=Annotations(idempotent=False),
    )
    async def run(
        task: Annotated[
            str,
            Meta(
                min_length=1,
                max_length=_MAX_TASK_CHARS,
                description="The task, with all that the sub-agent needs to know.",
            ),
        ],
        call: Call,
        agent: Annotated[str, Meta(max_length=64, description="The name of an agent definition.")] = "",
        tools: Annotated[list[str], Meta(max_length=50, description="Patterns, such as files.*")]
        | None = None,
        budget: Limits | None = None,
        isolated: Annotated[bool, "Start servers of its own, instead of sharing yours."] = False,  # noqa: FBT002
    ) -> dict[str, Any]:
        """Give a task to a sub-agent, which has a fresh history and at most your tools. Returns its last message. Several can run at once."""
        wanted = budget or Limits()
        limits = BudgetLimits(
            tokens=wanted.tokens or 0,
            cents=wanted.cents or 0,
            calls=wanted.calls or 0,
            seconds=wanted.seconds or 0,
        )
        delegation = Delegation(
            task=task,
            agent=agent,
            tools=None if tools is None else tuple(tools),
            budget=limits,
            isolated=isolated,
        )
        return {"answer": await delegate(context.session_id, read_call_facts(call), delegation)}

    return box
