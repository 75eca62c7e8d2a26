"""What the host decides about a session when it is opened: its agent, its permission rules, its budget, its parent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.agent.agent import Agent
from holdfast.connect.catalog import CatalogTool
from holdfast.model.agent_definition import AgentDefinition
from holdfast.model.budget_limits import NO_LIMITS, BudgetLimits
from holdfast.model.permission import Mode
from holdfast.session.permission_rules import NO_RULES, PermissionRules

if TYPE_CHECKING:
    from holdfast.session.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """What the host decides about a session when it is opened."""

    agent: Agent
    mode: Mode = Mode.ASK
    rules: PermissionRules = NO_RULES
    permission_wait: float = 0.0
    """How many seconds a question waits if no attached door can answer it."""
    server_wait_seconds: float = 0.0
    """How long a turn that another session's message starts waits for servers that are still starting."""
    has_title: bool = False
    """Whether the session has a title. If not, it gets the first title that `make_title` returns for a prompt."""
    budget: BudgetLimits = NO_LIMITS
    max_sub_agents: int = 4
    """How many sub-agents of the root session may run at a time."""
    definition: AgentDefinition | None = None
    parent: "Session | None" = None
    """The session that this one was started in. Its mode is an upper limit for this session's mode."""
    can_spawn: "Callable[[Session, CatalogTool], bool]" = lambda session, tool: True
    """Whether the session's agent may start another agent now, with this tool."""
