"""What a user interface shows about a live session, besides its events."""

import msgspec

from holdfast.agent.agent import Command
from holdfast.session.session import Session


class SessionDescription(msgspec.Struct, kw_only=True, rename="camel"):
    """A session's folders, trust and mode, and what can be called."""

    cwd: str
    roots: tuple[str, ...]
    trust: str
    mode: str
    commands: tuple[Command, ...] = ()
    """The agent's commands."""
    tools: dict[str, str] = {}
    """The tools and the first lines of their descriptions."""
    servers: tuple[str, ...] = ()
    starting: tuple[str, ...] = ()
    refusals: dict[str, str] = {}
    """The refused servers and the reasons."""
    is_busy: bool = False
    """Whether a turn is running or waiting."""


def describe_session(session: Session) -> SessionDescription:
    """Describe a session as it is now. Secrets are masked."""
    context, mask = session.context, session.record.mask
    return SessionDescription(
        cwd=context.cwd,
        roots=context.roots,
        trust=context.trust_level,
        mode=session.permission.mode,
        commands=session.agent.commands,
        tools={tool.name: tool.definition.summary for tool in session.available_tools},
        servers=session.available,
        starting=session.starting,
        refusals={refusal.server: mask.mask_all(refusal.reason) for refusal in session.refusals},
        is_busy=session.is_busy,
    )
