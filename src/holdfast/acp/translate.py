"""Events as an editor sees them: a pure function, for the live stream and for replay alike."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from holdfast.acp.blocks import shown
from holdfast.agent.agent import Command
from holdfast.builtin.builtins import FILES
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
)
from holdfast.model.json import JsonObject

Update = dict[str, Any]
INTERRUPTED = "This turn was interrupted before it was over."


def updates(event: Event, *, cwd: str = "", server: str = "") -> tuple[Update, ...]:
    """What an editor is told of an event; nothing of those that are not its business.

    `cwd` is where a relative path of our file tools begins; `server` is whose call it is that ends.
    """
    match event:
        case Replied(message_id=message_id, text=text):
            return (_chunk("agent_message_chunk", _text(text), message_id),)
        case Thought(message_id=message_id, text=text):
            return (_chunk("agent_thought_chunk", _text(text), message_id),)
        case Prompted(message_id=message_id, blocks=blocks):
            return tuple(_chunk("user_message_chunk", block, message_id) for block in blocks)
        case Planned(entries=entries):
            return ({"sessionUpdate": "plan", "entries": [_plan_entry(entry) for entry in entries]},)
        case ToolCalled():
            return (_tool_call(event, cwd),)
        case ToolStarted() | ToolEnded():
            return (_tool_step(event, server),)
        case Titled(title=title):
            return ({"sessionUpdate": "session_info_update", "title": title},)
        case ModeChanged(mode=mode):
            return ({"sessionUpdate": "current_mode_update", "currentModeId": mode},)
        case TurnEnded(turn_id=turn_id, reason=StopReason.INTERRUPTED):
            return (_chunk("agent_message_chunk", _text(INTERRUPTED), turn_id),)
        case TurnEnded(usage={"used": int() as used, "size": int() as size, **rest}):
            return (_usage(used, size, rest.get("cost")),)
        case (
            SessionOpened()
            | SessionClosed()
            | ServersResolved()
            | TrustLowered()
            | PermissionDecided()
            | TurnEnded()
        ):
            return ()
        case _:
            assert_never(event)


def available_commands(commands: Sequence[Command]) -> Update:
    """What can be typed, for the editor's completion."""
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


def _tool_call(event: ToolCalled, cwd: str) -> Update:
    update: Update = {
        "sessionUpdate": "tool_call",
        "toolCallId": event.call_id,
        "title": event.title or f"{event.server}.{event.tool}",
        "name": f"{event.server}.{event.tool}",
        "kind": event.kind if event.kind in _KINDS else "other",
        "status": "pending",
        "rawInput": event.arguments,
    }
    if locations := _locations(event, cwd):
        update["locations"] = locations
    return update


def _tool_step(event: ToolStarted | ToolEnded, server: str) -> Update:
    match event:
        case ToolStarted(call_id=call_id):
            return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": "in_progress"}
        case ToolEnded():
            return _tool_end(event, server)


def _tool_end(event: ToolEnded, server: str) -> Update:
    update: Update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": event.call_id,
        "status": "completed" if event.outcome is Outcome.COMPLETED else "failed",
        "content": [{"type": "content", "content": shown(block)} for block in event.content],
    }
    if event.structured is not None:
        update["rawOutput"] = event.structured
        # Anybody can claim to have changed a file; nobody else can have the name of our file tools.
        if server == FILES and (diff := _diff(event.structured)):
            update["content"] = [diff]
    return update


_KINDS = {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"}


def _plan_entry(entry: JsonObject) -> JsonObject:
    priority, status = entry.get("priority"), entry.get("status")
    return {
        "content": str(entry.get("content", "")),
        "priority": priority if priority in ("high", "medium", "low") else "medium",
        "status": status if status in ("pending", "in_progress", "completed") else "pending",
    }


def _usage(used: int, size: int, cost: Any) -> Update:
    update: Update = {"sessionUpdate": "usage_update", "used": max(used, 0), "size": max(size, 0)}
    match cost:
        case {"amount": int() | float() as amount, "currency": str() as currency}:
            return {**update, "cost": {"amount": amount, "currency": currency}}
        case _:
            return update


def _locations(event: ToolCalled, cwd: str) -> list[JsonObject]:
    path = event.arguments.get("path")
    if not isinstance(path, str) or not path:
        return []
    if event.server == FILES and cwd:
        return [{"path": os.path.normpath(os.path.join(cwd, path))}]  # noqa: PTH118 - it may be no path at all
    return [{"path": path}] if path.startswith("/") else []


def _diff(structured: Any) -> Update | None:
    """A file that was changed: what our own file tools say of it."""
    match structured:
        case {"diff": {"path": str() as path, "new_text": str() as new, **rest}}:
            old = rest.get("old_text")
            return {
                "type": "diff",
                "path": path,
                "oldText": old if isinstance(old, str) else None,
                "newText": new,
            }
        case _:
            return None
