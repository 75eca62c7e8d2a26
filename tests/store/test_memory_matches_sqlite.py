"""The in-memory store and the SQLite store return the same after the same operations."""

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Event,
    MessageReceived,
    ModeChanged,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    SessionOpened,
    StopReason,
    Thought,
    Titled,
    TrustLowered,
    TurnEnded,
)
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.store.clock import from_microseconds
from holdfast.store.memory import MemoryStore
from holdfast.store.query import ALL_SESSIONS, SearchQuery, SessionQuery, Visibility
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store, Tx
from holdfast.store.types import AppendResult, Hold, NewSession, SessionChange, StoredSession

IDS = [SessionId(f"sess_{number:016x}") for number in range(3)]
WORDS = ["red", "green", "blue", "Grün", "end-to-end"]

Operation: TypeAlias = Callable[[Tx], object]
ids = st.sampled_from(IDS)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
keys = st.none() | st.sampled_from(["k1", "k2", "k3"])
events = st.one_of(
    texts.map(lambda text: Replied(message_id="msg_r", text=text)),
    texts.map(lambda text: Thought(message_id="msg_t", text=text)),
    texts.map(lambda text: Titled(title=text)),
    st.tuples(st.sampled_from("ab"), texts).map(
        lambda given: Prompted(
            turn_id=given[0], message_id=f"msg_{given[0]}", blocks=({"type": "text", "text": given[1]},)
        )
    ),
    st.sampled_from("ab").map(lambda turn: TurnEnded(turn_id=turn, reason=StopReason.END_TURN)),
    st.sampled_from(Trust).map(lambda trust: TrustLowered(trust_level=trust)),
    st.just(SessionClosed(reason="done")),
)


def _create(session_id: SessionId, workspace: str, trust: Trust) -> Operation:
    context = SessionContext(session_id=session_id, trust_level=trust, workspace_id=workspace)
    return lambda tx: tx.create(NewSession(context=context, title="red"))


def _append(session_id: SessionId, event: Event, key: str | None) -> Operation:
    return lambda tx: _holding(tx, session_id, lambda hold: tx.append(hold, event, key))


def _change(session_id: SessionId, title: str) -> Operation:
    change = SessionChange(title=title, tags=("t",))
    return lambda tx: _holding(tx, session_id, lambda hold: tx.change(hold, change))


def _delete(session_id: SessionId) -> Operation:
    return lambda tx: _holding(tx, session_id, tx.delete)


def _holding(tx: Tx, session_id: SessionId, work: Callable[[Hold], object]) -> object:
    hold = tx.acquire(session_id)
    result = work(hold)
    tx.release(hold)
    return result


def _acquire(session_id: SessionId) -> Operation:
    """Nothing can be written to the session from then on: the hold is lost."""
    return lambda tx: tx.acquire(session_id).session_id


def _index(tx: Tx) -> None:
    tx.index_messages()


operations = st.one_of(
    st.tuples(ids, st.sampled_from(["", "w"]), st.sampled_from(Trust)).map(lambda given: _create(*given)),
    st.tuples(ids, events, keys).map(lambda given: _append(*given)),
    st.tuples(ids, events, keys).map(lambda given: _append(*given)),
    st.tuples(ids, texts).map(lambda given: _change(*given)),
    ids.map(_delete),
    ids.map(_acquire),
    st.just(_index),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(chosen=st.lists(operations, max_size=25))
def test_both_stores_return_the_same_after_the_same_operations(chosen: list[Operation]) -> None:
    assert asyncio.run(_on_disk(chosen)) == asyncio.run(_in_memory(chosen))


CHANGES: list[Event] = [
    SessionOpened(cwd="/b", roots=("/b", "/c"), trust_level=Trust.SANDBOXED),
    SessionOpened(cwd="/b", roots=(), trust_level=Trust.DIRECT),
    SessionClosed(reason="done"),
    TrustLowered(trust_level=Trust.SANDBOXED),
    TrustLowered(trust_level=Trust.DIRECT),
    Titled(title="blue"),
    ModeChanged(mode="ask"),
    ServersResolved(servers=("files",), refusals=()),
    Prompted(turn_id="b", message_id="msg_b", blocks=()),
    MessageReceived(turn_id="b", message_id="msg_c", sender=IDS[1], sender_title="", text="red"),
    TurnEnded(turn_id="a", reason=StopReason.END_TURN),
    TurnEnded(turn_id="b", reason=StopReason.END_TURN),
    TurnEnded(turn_id="a", reason=StopReason.INTERRUPTED),
]


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize("event", CHANGES, ids=lambda event: type(event).__name__)
def test_an_event_changes_a_session_in_both_stores_in_the_same_way(event: Event, trust: Trust) -> None:
    assert asyncio.run(_changed_on_disk(event, trust)) == asyncio.run(_changed_in_memory(event, trust))


async def _changed_on_disk(event: Event, trust: Trust) -> object:
    times = [1_000_000]
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteStore(Path(folder) / "holdfast.db", now=lambda: times[-1]) as store:
            return await _change_a_second_later(store, event, trust, times)


async def _changed_in_memory(event: Event, trust: Trust) -> object:
    times = [1_000_000]
    async with MemoryStore(now=lambda: times[-1]) as store:
        return await _change_a_second_later(store, event, trust, times)


async def _change_a_second_later(store: Store, event: Event, trust: Trust, times: list[int]) -> object:
    """The session and its resolution, after an event that came a second after the session was created and its turn began."""
    context = SessionContext(session_id=IDS[0], trust_level=trust, cwd="/a", roots=("/a",))
    await store.create(NewSession(context=context, title="red", tags=("t",)))
    hold = await store.acquire(IDS[0])
    await store.append(hold, Prompted(turn_id="a", message_id="msg_a", blocks=()))
    times.append(2_000_000)
    await store.append(hold, event)
    return await store.session(IDS[0]), await store.read(lambda tx: tx.resolution(IDS[0]))


async def _on_disk(chosen: list[Operation]) -> list[object]:
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteStore(Path(folder) / "holdfast.db", now=_clock()) as store:
            return [*[await _result(store, operation) for operation in chosen], *await _query_all(store)]


async def _in_memory(chosen: list[Operation]) -> list[object]:
    async with MemoryStore(now=_clock()) as store:
        return [*[await _result(store, operation) for operation in chosen], *await _query_all(store)]


async def _result(store: Store, operation: Operation) -> object:
    try:
        return _without_times(await store.write(operation))
    except HoldfastError as error:
        return error.code.name


async def _query_all(store: Store) -> list[object]:
    """The results of many queries; hits are sorted, as messages of open turns are indexed late."""
    results: list[object] = [
        (stored.seq, stored.event, stored.key)
        for session_id in IDS
        async for stored in store.events(session_id)
    ]
    for visibility in (ALL_SESSIONS, Visibility(workspace_id="w"), Visibility(trust_level=Trust.SANDBOXED)):
        page = await store.sessions(SessionQuery(visibility=visibility))
        results += [_without_times(session) for session in page.items]
        for words in ("red", "grun blue", "to-end"):
            hits = await store.search(SearchQuery(visibility=visibility, words=words, limit=100))
            results.append(
                sorted(
                    (hit.session.context.session_id, hit.message_id, hit.seq, hit.snippet)
                    for hit in hits.items
                )
            )
    return results


def _without_times(result: object) -> object:
    if isinstance(result, StoredSession):
        return replace(result, created=from_microseconds(0), updated=from_microseconds(0))
    if isinstance(result, AppendResult):
        return result.seq, result.is_new
    return result


def _clock() -> Callable[[], int]:
    return itertools.count(1_000_000).__next__
