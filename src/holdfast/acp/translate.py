"""Events as an editor sees them: a pure function, for the live stream and for replay alike."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

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
)
from holdfast.model.json import JsonObject

Update = dict[str, Any]
INTERRUPTED = "This turn was interrupted: Holdfast ended before it was over."


def updates(event: Event) -> tuple[Update, ...]:
    """What an editor is told of an event; nothing of those that are not its business."""
    match event:
        case Replied(message_id=message_id, text=text):
            return (_chunk("agent_message_chunk", _text(text), message_id),)
        case Thought(message_id=message_id, text=text):
            return (_chunk("agent_thought_chunk", _text(text), message_id),)
        case Prompted(message_id=message_id, blocks=blocks):
            return tuple(_chunk("user_message_chunk", block, message_id) for block in blocks)
        case Planned(entries=entries):
            return ({"sessionUpdate": "plan", "entries": list(entries)},)
        case ToolCalled():
            return (_tool_call(event),)
        case ToolStarted(call_id=call_id):
            return ({"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": "in_progress"},)
        case ToolEnded():
            return (_tool_end(event),)
        case Titled(title=title):
            return ({"sessionUpdate": "session_info_update", "title": title},)
        case ModeChanged(mode=mode):
            return ({"sessionUpdate": "current_mode_update", "currentModeId": mode},)
        case TurnEnded(turn_id=turn_id, reason=StopReason.INTERRUPTED):
            return (_chunk("agent_message_chunk", _text(INTERRUPTED), turn_id),)
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


def _tool_call(event: ToolCalled) -> Update:
    update: Update = {
        "sessionUpdate": "tool_call",
        "toolCallId": event.call_id,
        "title": event.title or f"{event.server}.{event.tool}",
        "name": f"{event.server}.{event.tool}",
        "kind": event.kind,
        "status": "pending",
        "rawInput": event.arguments,
    }
    if locations := _locations(event.arguments):
        update["locations"] = locations
    return update


def _tool_end(event: ToolEnded) -> Update:
    update: Update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": event.call_id,
        "status": "completed" if event.outcome is Outcome.COMPLETED else "failed",
        "content": [shown for block in event.content if (shown := _content(block)) is not None],
    }
    if event.structured is not None:
        update["rawOutput"] = event.structured
        if diff := _diff(event.structured):
            update["content"] = [diff]
    return update


_KNOWN = {"text", "image", "audio", "resource_link", "resource"}


def _content(block: JsonObject) -> JsonObject | None:
    return {"type": "content", "content": block} if block.get("type") in _KNOWN else None


def _locations(arguments: JsonObject) -> list[JsonObject]:
    path = arguments.get("path")
    return [{"path": path}] if isinstance(path, str) and path.startswith("/") else []


def _diff(structured: Any) -> Update | None:
    """A file that was changed: what our own file tools say of it."""
    match structured:
        case {"diff": {"path": str() as path, "new_text": str() as new, **rest}}:
            return {"type": "diff", "path": path, "oldText": rest.get("old_text"), "newText": new}
        case _:
            return None
