"""The tool that lists the servers that a session did not get and the tools that await approval, why, and what a person can do about it."""

import shlex

import msgspec

from holdfast.model.allowlist import Allowlist
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.visible_text import display_name
from holdfast.session.session import Session
from holdfast.wire.mcp.tools import Tool, text_result
from holdfast.wire.messages import Raw

STATUS_TOOL = "holdfast__status"
_MAX_LINES = 200


def has_missing(session: Session, allowed: Allowlist) -> bool:
    """Whether a server was refused, or a tool awaits approval. `allowed` has the servers that the client may know of."""
    return bool(_refusals(session, allowed)) or bool(session.awaiting_approval)


def status_definition() -> Raw:
    """The tool's definition."""
    return Raw(
        msgspec.json.encode(
            Tool(
                name=STATUS_TOOL,
                title="Holdfast: what is missing, and why",
                description="Lists the servers that this session did not get and the tools that await approval, why, and what a person "
                "can do about it. Call it if a tool that you expected is missing.",
                input_schema=Raw(b'{"type":"object","properties":{}}'),
                annotations=Raw(b'{"readOnlyHint":true,"openWorldHint":false}'),
            )
        )
    )


def status_result(session: Session, allowed: Allowlist) -> dict[str, object]:
    """The tool's result."""
    lines = [
        f"Session {session.context.session_id}, trust {session.context.trust_level}, mode {session.permission.mode}."
    ]
    ended, errors = session.ended, session.restart_errors
    for name in session.available:
        state = "It has ended; the next call starts it again." if name in ended else "available."
        lines.append(f"Server {display_name(name)}: {errors.get(name, state)}")
    lines += [f"Server {display_name(name)}: still starting." for name in session.starting]
    for refusal in _refusals(session, allowed):
        lines.append(f"Server {refusal.display_name}: not offered ({refusal.stage}). {refusal.reason}")
    for server, tools in session.awaiting_approval.items():
        approve = shlex.join(["holdfast", "servers", "approve", server])
        for tool in tools:
            lines.append(
                f"Tool {display_name(tool.name)} of {display_name(server)}: not offered. {tool.reason} A person can review it with: {approve}"
            )
    if not has_missing(session, allowed):
        lines.append("No server was refused, and no tool awaits approval.")
    if len(lines) > _MAX_LINES:
        lines = [*lines[:_MAX_LINES], f"… and {len(lines) - _MAX_LINES} more."]
    return text_result("\n".join(lines))


def _refusals(session: Session, allowed: Allowlist) -> list[Refusal]:
    """The refusals of allowed servers, and of lists of servers that cannot be read. The name of such a list is its path."""
    return [
        refusal
        for refusal in session.refusals
        if allowed.allows(refusal.server) or (refusal.stage is Stage.LOAD and refusal.server.startswith("/"))
    ]
