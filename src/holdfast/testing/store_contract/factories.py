"""Helpers for the tests of a store: make sessions, events and approvals, and search."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from holdfast.model.context import SessionContext
from holdfast.model.event import Prompted, StopReason, ToolCalled, TurnEnded
from holdfast.model.ids import SessionId, new_message_id, new_session_id, new_turn_id
from holdfast.model.trust import Trust
from holdfast.store.query import SearchQuery, Visibility
from holdfast.store.store import Store
from holdfast.store.types import Approval, NewSession, StoredSession

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


def make_context(**fields: Any) -> SessionContext:
    """The context of a sandboxed session, with these fields replaced."""
    return replace(
        SessionContext(session_id=new_session_id(), trust_level=Trust.SANDBOXED, cwd="/"), **fields
    )


async def create_session(
    store: Store, *, title: str = "", tags: tuple[str, ...] = (), source: str = "", **fields: Any
) -> StoredSession:
    """Store a new session."""
    return await store.create(
        NewSession(context=make_context(**fields), title=title, tags=tags, source=source)
    )


async def add_turn(store: Store, session_id: SessionId, text: str) -> None:
    """Append a complete turn with this prompt."""
    turn = new_turn_id()
    await store.append(session_id, make_prompt(text, turn))
    await store.append(session_id, TurnEnded(turn_id=turn, reason=StopReason.END_TURN))


def make_prompt(text: str, turn_id: str) -> Prompted:
    """A prompt of the user."""
    return Prompted(turn_id=turn_id, message_id=new_message_id(), blocks=({"type": "text", "text": text},))


def make_call(call_id: str) -> ToolCalled:
    """The start of a tool call."""
    return ToolCalled(call_id=call_id, server="files", tool="read", arguments={"path": "a"})


async def search(store: Store, words: str, visibility: Visibility) -> list[tuple[SessionId, str]]:
    """The session ids and message ids of the search results."""
    page = await store.search(SearchQuery(visibility=visibility, words=words, limit=100))
    return [(hit.session.context.session_id, hit.message_id) for hit in page.items]


def make_approval(key: str) -> Approval:
    """An approval with this key."""
    return Approval(key=key, content_hash="c0ffee", by="ada", at=datetime(2026, 11, 1, 12, 30, tzinfo=UTC))
