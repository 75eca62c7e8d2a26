"""The plan tool, with which an agent shows the user the steps of its work. Each call replaces the plan."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from holdfast import __version__
from holdfast.builtin.call_facts import CallFacts, read_call_facts
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.json import JsonObject
from holdfast.model.meta_keys import KIND_KEY
from holdfast.toolkit.authentication import EnvironmentAuthenticator
from holdfast.toolkit.call import Call
from holdfast.toolkit.operation import Annotations
from holdfast.toolkit.toolbox import Toolbox
from holdfast.wire.mcp.server import Service

PublishPlan = Callable[[SessionId, CallFacts, list[JsonObject]], Awaitable[None]]
"""Stores the plan of a session's agent, and shows it in the session's doors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a plan."""

    content: Annotated[str, Meta(min_length=1, max_length=500)]
    status: Literal["pending", "in_progress", "completed"] = "pending"


def plan_service(context: SessionContext, publish: PublishPlan) -> Service:
    """Return the in-process server with the plan tool of one session."""
    return plan_toolbox(context, publish).server(EnvironmentAuthenticator(context))


def plan_toolbox(context: SessionContext, publish: PublishPlan) -> Toolbox:
    """Return the plan tool of one session."""
    box = Toolbox("plan", version=__version__)

    # A query, because queries need no permission: the tool only shows something.
    @box.tool(
        title="Show a plan",
        operation="query",
        meta={KIND_KEY: "think"},
        annotations=Annotations(idempotent=True),
    )
    async def update(steps: Annotated[list[Step], Meta(max_length=50)], call: Call) -> str:
        """Show the user the steps of a longer task. Replaces the previous plan."""
        # The Agent Client Protocol requires a priority.
        entries: list[JsonObject] = [
            {"content": step.content, "status": step.status, "priority": "medium"} for step in steps
        ]
        await publish(context.session_id, read_call_facts(call), entries)
        return "shown"

    return box
