"""The parts of events that terminals and editors show: tool names, plans, changed files, failures, stop reasons."""

from dataclasses import dataclass

from holdfast.model.event import MessageReceived, Planned, StopReason, ToolCalled, ToolEnded
from holdfast.model.json import Json
from holdfast.model.server import FILES_SERVER

_PRIORITIES = ("high", "medium", "low")
_STATUSES = ("pending", "in_progress", "completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """One entry of a plan, with defaults for what the agent left out."""

    content: str
    priority: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that a built-in file tool changed or would change; `old_text` is None if the file is new."""

    path: str
    old_text: str | None
    new_text: str


def tool_name(call: ToolCalled) -> str:
    """The tool as users type it: `server.tool`."""
    return f"{call.server}.{call.tool}" if call.server else call.tool


def tool_title(call: ToolCalled) -> str:
    """The tool's title, or its name."""
    return call.title or tool_name(call)


def received_text(message: MessageReceived) -> str:
    """A message of another session's agent, as it is shown. Every line is marked, so that no line looks like text of the user."""
    lines = "\n".join(f"| {line}" for line in message.text.splitlines())
    return f"Message from the session {message.sender} {message.sender_title!r}:\n{lines}\n"


def plan_entries(plan: Planned) -> list[PlanEntry]:
    """The entries of a plan. An unknown priority is `medium`, an unknown status `pending`."""
    return [
        PlanEntry(
            content=str(entry.get("content", "")),
            priority=_one_of(_PRIORITIES, entry.get("priority"), "medium"),
            status=_one_of(_STATUSES, entry.get("status"), "pending"),
        )
        for entry in plan.entries
    ]


def file_change(call: ToolCalled | None, ended: ToolEnded) -> FileChange | None:
    """The file that a call of a built-in file tool changed; None for other calls, and if the result shows no change.

    Any server can claim to have changed a file, so only the built-in server is believed. No other server can have its
    name, or set the kind of its tools to `edit`.
    """
    if call is None or call.server != FILES_SERVER or call.kind != "edit":
        return None
    return read_change(ended.structured)


def read_change(structured: Json) -> FileChange | None:
    """The change in the structured result of a built-in file tool; None if it has none, as for a change that is too long to show."""
    match structured:
        case {"diff": {"path": str(path), "new_text": str(new), **rest}}:
            old = rest.get("old_text")
            return FileChange(path=path, old_text=old if isinstance(old, str) else None, new_text=new)
        case _:
            return None


def failure_code(ended: ToolEnded) -> str:
    """The code of a failed call: Holdfast's, or else the tool's own; empty if there is none."""
    match ended.structured:
        case {"code": str(code)} if not ended.code:
            return code
        case _:
            return ended.code


def stop_text(reason: StopReason) -> str:
    """The text to show at the end of a turn; empty if it ended normally."""
    match reason:
        case StopReason.END_TURN:
            return ""
        case StopReason.CANCELLED:
            return "Cancelled."
        case StopReason.INTERRUPTED:
            return "This turn was interrupted before it ended."
        case StopReason.MAX_TOKENS | StopReason.MAX_TURN_REQUESTS | StopReason.REFUSAL:
            return f"The turn ended early: {reason}."


def _one_of(known: tuple[str, ...], value: object, default: str) -> str:
    return value if isinstance(value, str) and value in known else default
