"""Converts a session's events to ACP updates."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from holdfast.acp.content import diff_block, editor_blocks
from holdfast.acp.sub_agent_text import SubAgentText
from holdfast.agent.agent import Command
from holdfast.model.event import (
    Event,
    HistoryCompacted,
    MessageReceived,
    MessageSent,
    ModeChanged,
    ModelResponded,
    Origin,
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
from holdfast.model.event_text import (
    file_change,
    plan_entries,
    received_text,
    stop_text,
    tool_name,
    tool_title,
)
from holdfast.model.json import JsonObject
from holdfast.model.server import FILES_SERVER

Update = dict[str, Any]
FOR_SESSION = "for session"
"""A key that an update has if it is for a sub-agent that the editor shows as a session. Its value is the id of that session.

The key is removed before the update is sent.
"""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgentSession:
    """A sub-agent that the editor shows as a session."""

    session_id: str
    """The id of the session that the editor shows."""
    parent_call: str
    """The id of the call that the sub-agent works for."""
    updates: "Updates"
    """Converts the sub-agent's events."""


class Updates:
    """Converts one session's events, in order. `cwd` is the session's folder."""

    def __init__(self, cwd: str = "", *, session_id: str = "", sub_agents_are_sessions: bool = False) -> None:
        """With `sub_agents_are_sessions`, the editor shows each sub-agent as a session, instead of as text in a tool call."""
        self._cwd = cwd
        self._session_id = session_id
        self._sub_agents_are_sessions = sub_agents_are_sessions
        self._sub_agent_sessions: dict[str, SubAgentSession] = {}
        """The sessions that the editor shows, by the id of the sub-agent."""
        self._running: dict[str, ToolCalled] = {}
        self._sub_agent_texts: dict[str, SubAgentText] = {}
        """The texts that the editor shows, by the id of the running call that the sub-agents work for."""
        self._outer_calls: dict[str, str] = {}
        """For each running call of a sub-agent: the id of the call that this sub-agent works for."""

    def for_sub_agent(self, event: Event, origin: Origin) -> Sequence[Update]:
        """Return the updates for the next event of a sub-agent."""
        if self._sub_agents_are_sessions:
            return self._for_sub_agent_session(event, origin)
        call_id = origin.parent_call
        while call_id in self._outer_calls:
            call_id = self._outer_calls[call_id]
        if isinstance(event, ToolCalled):
            self._outer_calls[event.call_id] = origin.parent_call
        elif isinstance(event, ToolEnded):
            self._outer_calls.pop(event.call_id, None)
        shown = self._sub_agent_texts.setdefault(call_id, SubAgentText()).add(event, origin.agent)
        if shown is None or call_id not in self._running:
            return []
        update: Update = {"sessionUpdate": "tool_call_update", "toolCallId": call_id}
        return [{**update, "content": [{"type": "content", "content": _text(shown)}]}]

    def _for_sub_agent_session(self, event: Event, origin: Origin) -> Sequence[Update]:
        sub_agent = self._sub_agent_sessions.get(origin.agent)
        announced: list[Update] = []
        ended = self._end_sub_agents(event.call_id) if isinstance(event, ToolEnded) else []
        if sub_agent is None:
            sub_agent = self._sub_agent_sessions[origin.agent] = SubAgentSession(
                session_id=f"{self._session_id}.{origin.agent}",
                parent_call=origin.parent_call,
                updates=Updates(self._cwd),
            )
            announced = [
                {
                    "sessionUpdate": "subagent_update",
                    "sessionId": sub_agent.session_id,
                    "title": origin.agent,
                    "state": {"state": "running"},
                    "_meta": {"dev.holdfast/toolCallId": origin.parent_call},
                }
            ]
        return [
            *announced,
            *ended,
            *({FOR_SESSION: sub_agent.session_id, **update} for update in sub_agent.updates.for_event(event)),
        ]

    def _end_sub_agents(self, call_id: str) -> list[Update]:
        ended = [
            agent for agent, sub_agent in self._sub_agent_sessions.items() if sub_agent.parent_call == call_id
        ]
        return [
            {
                "sessionUpdate": "subagent_update",
                "sessionId": self._sub_agent_sessions.pop(agent).session_id,
                "state": {"state": "idle"},
            }
            for agent in ended
        ]

    def for_event(self, event: Event) -> Sequence[Update]:
        """Return the updates for the next event. Some events have none."""
        match event:
            case Replied(message_id=message_id, text=text):
                return [agent_message(text, message_id)]
            case Thought(message_id=message_id, text=text):
                return [_chunk("agent_thought_chunk", _text(text), message_id)]
            case Prompted() | MessageReceived():
                return _message_chunks(event)
            case Planned():
                return [_plan(event)]
            case ToolCalled(call_id=call_id):
                self._running[call_id] = event
                return [_tool_call(event, self._cwd)]
            case ToolStarted(call_id=call_id):
                return [_tool_status(call_id, "in_progress")]
            case ToolEnded(call_id=call_id):
                self._sub_agent_texts.pop(call_id, None)
                ended = self._end_sub_agents(call_id) if self._sub_agent_sessions else []
                return [*ended, _tool_end(self._running.pop(call_id, None), event)]
            case Titled(title=title):
                return [{"sessionUpdate": "session_info_update", "title": title}]
            case ModeChanged(mode=mode):
                return [{"sessionUpdate": "current_mode_update", "currentModeId": mode}]
            case TurnEnded():
                return self._turn_ended(event)
            case (
                SessionOpened()
                | MessageSent()
                | SessionClosed()
                | ServersResolved()
                | TrustLowered()
                | PermissionDecided()
                | ModelResponded()
                | HistoryCompacted()
                | UnknownEvent()
            ):
                return []
            case _:
                assert_never(event)

    def _turn_ended(self, event: TurnEnded) -> Sequence[Update]:
        match event:
            case TurnEnded(turn_id=turn_id, reason=StopReason.INTERRUPTED as reason):
                # Nothing runs after an interruption, so calls without an end have failed.
                calls = {sub_agent.parent_call for sub_agent in self._sub_agent_sessions.values()}
                unfinished = [
                    *(update for call_id in calls for update in self._end_sub_agents(call_id)),
                    *(_tool_status(call_id, "failed") for call_id in self._running),
                ]
                self._running.clear()
                self._outer_calls.clear()
                return [*unfinished, agent_message(stop_text(reason), turn_id)]
            case TurnEnded(usage={"used": int() as used, "size": int() as size, **rest}):
                return [_usage(used, size, rest.get("cost"))]
            case _:
                return []


def agent_message(text: str, message_id: str) -> Update:
    """Return the update for a text of the agent."""
    return _chunk("agent_message_chunk", _text(text), message_id)


def available_commands(commands: Sequence[Command]) -> Update:
    """Return the update that lists the slash commands."""
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


def without_payload(update: Update) -> Update:
    """Return the update without its content, because it is too long for one line."""
    kept = {key: value for key, value in update.items() if key not in ("rawInput", "rawOutput", "content")}
    block = {"type": "text", "text": "[too long to be shown]"}
    if "content" not in update:
        return kept
    is_list = isinstance(update["content"], list)
    return {**kept, "content": [{"type": "content", "content": block}] if is_list else block}


def _chunk(kind: str, content: Mapping[str, Any], message_id: str) -> Update:
    return {"sessionUpdate": kind, "content": content, "messageId": message_id}


def _message_chunks(event: Prompted | MessageReceived) -> list[Update]:
    """Return a message of the user or of another agent. An agent's words are never shown as the user's."""
    if isinstance(event, Prompted):
        return [_chunk("user_message_chunk", block, event.message_id) for block in event.blocks]
    return [_chunk("agent_thought_chunk", _text(received_text(event)), event.message_id)]


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
    # Other servers may resolve a relative path against another folder.
    if event.server == FILES_SERVER and cwd:
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
