"""What the tests of a store begin with."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from holdfast.model.context import SessionContext
from holdfast.model.event import Prompted, StopReason, ToolCalled, TurnEnded
from holdfast.model.ids import SessionId, new_message_id, new_session_id, new_turn_id
from holdfast.model.trust import Trust
from holdfast.store.query import Reach, SearchQuery
from holdfast.store.rows import Approval, NewSession, StoredSession
from holdfast.store.store import Store

Opener = Callable[[], AbstractAsyncContextManager[Store]]


def context(**fields: Any) -> SessionContext:
    """A sandboxed session's context, but for the fields that matter to a test."""
    return replace(
        SessionContext(session_id=new_session_id(), trust_level=Trust.SANDBOXED, cwd="/"), **fields
    )


async def create(
    store: Store, *, title: str = "", tags: tuple[str, ...] = (), source: str = "", **fields: Any
) -> StoredSession:
    """A new session in the store."""
    return await store.create(NewSession(context=context(**fields), title=title, tags=tags, source=source))


async def say(store: Store, session_id: SessionId, text: str) -> None:
    """A whole turn in which the user says this."""
    turn = new_turn_id()
    await store.append(session_id, prompted(text, turn))
    await store.append(session_id, TurnEnded(turn_id=turn, reason=StopReason.END_TURN))


def prompted(text: str, turn_id: str) -> Prompted:
    """The user says something."""
    return Prompted(turn_id=turn_id, message_id=new_message_id(), blocks=({"type": "text", "text": text},))


def called(call_id: str) -> ToolCalled:
    """The agent asks for a tool."""
    return ToolCalled(call_id=call_id, server="files", tool="read", arguments={"path": "a"})


async def found(store: Store, words: str, reach: Reach) -> list[tuple[SessionId, str]]:
    """In which messages of which sessions the words are found."""
    page = await store.search(SearchQuery(reach=reach, words=words, limit=100))
    return [(hit.session.context.session_id, hit.message_id) for hit in page.items]


def approval(what: str) -> Approval:
    """Somebody's approval of a thing."""
    return Approval(what=what, content_hash="c0ffee", by="ada", at=datetime(2026, 11, 1, 12, 30, tzinfo=UTC))
