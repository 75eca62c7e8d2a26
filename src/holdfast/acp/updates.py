"""Converts a session's events to ACP updates, both live and in a replay."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from holdfast.acp.content import diff_block, editor_blocks
from holdfast.agent.agent import Command
from holdfast.model.event import (
    Event,
    ModeChanged,
    Outcome,
    PermissionDecided,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    SessionOpened,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TrustLowered,
    TurnEnded,
    UnknownEvent,
)
from holdfast.model.event_text import file_change, plan_entries, stop_text, tool_name, tool_title
from holdfast.model.json import JsonObject
from holdfast.model.server import FILES_SERVER

Update = dict[str, Any]

_ACP_TOOL_KINDS = {
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
}


class Updates:
    """Converts one session's events, in order. `cwd` is the session's folder."""

    def __init__(self, cwd: str = "") -> None:
        self._cwd = cwd
        self._running: dict[str, ToolCalled] = {}

    def for_event(self, event: Event) -> Sequence[Update]:
        """Return the updates for the next event; none if editors do not get this kind of event."""
        match event:
            case Replied(message_id=message_id, text=text):
                return [_chunk("agent_message_chunk", _text(text), message_id)]
            case Thought(message_id=message_id, text=text):
                return [_chunk("agent_thought_chunk", _text(text), message_id)]
            case Prompted(message_id=message_id, blocks=blocks):
                return [_chunk("user_message_chunk", block, message_id) for block in blocks]
            case Planned():
                return [_plan(event)]
            case ToolCalled(call_id=call_id):
                self._running[call_id] = event
                return [_tool_call(event, self._cwd)]
            case ToolStarted(call_id=call_id):
                return [_tool_status(call_id, "in_progress")]
            case ToolEnded(call_id=call_id):
                return [_tool_end(self._running.pop(call_id, None), event)]
            case Titled(title=title):
                return [{"sessionUpdate": "session_info_update", "title": title}]
            case ModeChanged(mode=mode):
                return [{"sessionUpdate": "current_mode_update", "currentModeId": mode}]
            case TurnEnded():
                return self._turn_ended(event)
            case (
                SessionOpened()
                | SessionClosed()
                | ServersResolved()
                | TrustLowered()
                | PermissionDecided()
                | UnknownEvent()
            ):
                return []
            case _:
                assert_never(event)

    def _turn_ended(self, event: TurnEnded) -> Sequence[Update]:
        match event:
            case TurnEnded(turn_id=turn_id, reason=StopReason.INTERRUPTED as reason):
                # Nothing runs after an interruption, so calls without an end have failed.
                unfinished = [_tool_status(call_id, "failed") for call_id in self._running]
                self._running.clear()
                return [*unfinished, _chunk("agent_message_chunk", _text(stop_text(reason)), turn_id)]
            case TurnEnded(usage={"used": int() as used, "size": int() as size, **rest}):
                return [_usage(used, size, rest.get("cost"))]
            case _:
                return []


def available_commands(commands: Sequence[Command]) -> Update:
    """The update that lists the slash commands."""
    return {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [
            {
                "name": command.name,
                "description": command.description,
                **({"input": {"hint": command.hint}} if command.hint else {}),
            }
            for command in commands
        ],
    }


def _chunk(kind: str, content: Mapping[str, Any], message_id: str) -> Update:
    return {"sessionUpdate": kind, "content": content, "messageId": message_id}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _plan(event: Planned) -> Update:
    entries = [
        {"content": entry.content, "priority": entry.priority, "status": entry.status}
        for entry in plan_entries(event)
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def _tool_call(event: ToolCalled, cwd: str) -> Update:
    update: Update = {
        "sessionUpdate": "tool_call",
        "toolCallId": event.call_id,
        "title": tool_title(event),
        "name": tool_name(event),
        "kind": event.kind if event.kind in _ACP_TOOL_KINDS else "other",
        "status": "pending",
        "rawInput": event.arguments,
    }
    if locations := _locations(event, cwd):
        update["locations"] = locations
    return update


def _locations(event: ToolCalled, cwd: str) -> list[JsonObject]:
    path = event.arguments.get("path")
    if not isinstance(path, str) or not path:
        return []
    if (
        event.server == FILES_SERVER and cwd
    ):  # other servers may resolve a relative path against another folder
        return [{"path": os.path.normpath(os.path.join(cwd, path))}]  # noqa: PTH118 - the argument may not be a valid path
    return [{"path": path}] if path.startswith("/") else []


def _tool_status(call_id: str, status: str) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}


def _tool_end(call: ToolCalled | None, ended: ToolEnded) -> Update:
    update = _tool_status(ended.call_id, "completed" if ended.outcome is Outcome.COMPLETED else "failed")
    update["content"] = [{"type": "content", "content": block} for block in editor_blocks(ended.content)]
    if ended.structured is not None:
        update["rawOutput"] = ended.structured
    if change := file_change(call, ended):
        update["content"] = [diff_block(change)]
    return update


def _usage(used: int, size: int, cost: Any) -> Update:
    update: Update = {"sessionUpdate": "usage_update", "used": max(used, 0), "size": max(size, 0)}
    match cost:
        case {"amount": int() | float() as amount, "currency": str() as currency}:
            return {**update, "cost": {"amount": amount, "currency": currency}}
        case _:
            return update
