"""Helpers for the tests of a store: make sessions, events and approvals, and search."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from holdfast.model.context import SessionContext
from holdfast.model.event import Prompted, StopReason, ToolCalled, TurnEnded
from holdfast.model.ids import SessionId, new_message_id, new_session_id, new_turn_id
from holdfast.model.trust import Trust
from holdfast.store.lease import LEASE_SECONDS
from holdfast.store.owner import Owner
from holdfast.store.query import SearchQuery, Visibility
from holdfast.store.store import Store
from holdfast.store.types import Approval, Hold, NewSession, StoredSession


class OpenStore(Protocol):
    """Opens a store on the data of the current test. Each call opens another store on the same data, as another process would.

    `lease_seconds` is how long the store's leases last if they are not renewed. `owner` is the process that they name; None for
    this process.
    """

    def __call__(
        self, *, lease_seconds: float = LEASE_SECONDS, owner: Owner | None = None
    ) -> AbstractAsyncContextManager[Store]: ...


def make_context(**fields: Any) -> SessionContext:
    """Make the context of a sandboxed session, with these fields replaced."""
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


async def hold_session(
    store: Store, *, title: str = "", tags: tuple[str, ...] = (), source: str = "", **fields: Any
) -> Hold:
    """Store a new session, and acquire it."""
    created = await create_session(store, title=title, tags=tags, source=source, **fields)
    return await store.acquire(created.context.session_id)


async def add_turn(store: Store, hold: Hold, text: str) -> None:
    """Append a complete turn with this prompt."""
    turn = new_turn_id()
    await store.append(hold, make_prompt(text, turn))
    await store.append(hold, TurnEnded(turn_id=turn, reason=StopReason.END_TURN))


def make_prompt(text: str, turn_id: str) -> Prompted:
    """Make a prompt from the user."""
    return Prompted(turn_id=turn_id, message_id=new_message_id(), blocks=({"type": "text", "text": text},))


def make_call(call_id: str) -> ToolCalled:
    """Make the event that requests a tool call."""
    return ToolCalled(call_id=call_id, server="files", tool="read", arguments={"path": "a"})


async def search(store: Store, words: str, visibility: Visibility) -> list[tuple[SessionId, str]]:
    """Search, and return the session ids and message ids of the results."""
    page = await store.search(SearchQuery(visibility=visibility, words=words, limit=100))
    return [(hit.session.context.session_id, hit.message_id) for hit in page.items]


def make_approval(key: str) -> Approval:
    """Make an approval with this key."""
    return Approval(key=key, content_hash="c0ffee", by="ada", at=datetime(2026, 11, 1, 12, 30, tzinfo=UTC))
