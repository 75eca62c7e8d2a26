"""The store in memory and the one on disk mean the same: whatever is done to both, both say the same."""

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Event,
    Prompted,
    Replied,
    SessionClosed,
    StopReason,
    Thought,
    Titled,
    TrustLowered,
    TurnEnded,
)
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.store.clock import from_stored
from holdfast.store.memory import MemoryStore
from holdfast.store.query import OPERATOR, Reach, SearchQuery, SessionQuery
from holdfast.store.rows import NewSession, SessionChange, StoredSession
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store, Tx

IDS = [SessionId(f"sess_{number:016x}") for number in range(3)]
WORDS = ["red", "green", "blue", "Grün", "end-to-end"]

Deed: TypeAlias = Callable[[Tx], object]
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


def _creates(session_id: SessionId, workspace: str, trust: Trust) -> Deed:
    context = SessionContext(session_id=session_id, trust_level=trust, workspace_id=workspace)
    return lambda tx: tx.create(NewSession(context=context, title="red"))


def _appends(session_id: SessionId, event: Event, key: str | None) -> Deed:
    return lambda tx: tx.append(session_id, event, key)


def _changes(session_id: SessionId, title: str) -> Deed:
    return lambda tx: tx.change(session_id, SessionChange(title=title, tags=("t",)))


def _deletes(session_id: SessionId) -> Deed:
    return lambda tx: tx.delete(session_id)


def _indexes(tx: Tx) -> None:
    tx.index()


deeds = st.one_of(
    st.tuples(ids, st.sampled_from(["", "w"]), st.sampled_from(Trust)).map(lambda given: _creates(*given)),
    st.tuples(ids, events, keys).map(lambda given: _appends(*given)),
    st.tuples(ids, events, keys).map(lambda given: _appends(*given)),
    st.tuples(ids, texts).map(lambda given: _changes(*given)),
    ids.map(_deletes),
    st.just(_indexes),
)


@settings(max_examples=60, deadline=None)
@given(done=st.lists(deeds, max_size=25))
def test_both_stores_say_the_same_after_the_same_deeds(done: list[Deed]) -> None:
    assert asyncio.run(_on_disk(done)) == asyncio.run(_in_memory(done))


async def _on_disk(done: list[Deed]) -> list[object]:
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteStore(Path(folder) / "holdfast.db", now=_clock()) as store:
            return [*[await _outcome(store, deed) for deed in done], *await _all(store)]


async def _in_memory(done: list[Deed]) -> list[object]:
    async with MemoryStore(now=_clock()) as store:
        return [*[await _outcome(store, deed) for deed in done], *await _all(store)]


async def _outcome(store: Store, deed: Deed) -> object:
    try:
        return _timeless(await store.write(deed))
    except HoldfastError as error:
        return error.code.name


async def _all(store: Store) -> list[object]:
    """All that can be asked; the order of hits is left out, as messages of unfinished turns are indexed late."""
    said: list[object] = [
        (stored.seq, stored.event, stored.key)
        for session_id in IDS
        async for stored in store.events(session_id)
    ]
    for reach in (OPERATOR, Reach(workspace_id="w"), Reach(trust_level=Trust.SANDBOXED)):
        page = await store.sessions(SessionQuery(reach=reach))
        said += [_timeless(session) for session in page.items]
        for words in ("red", "grun blue", "to-end"):
            hits = await store.search(SearchQuery(reach=reach, words=words, limit=100))
            said.append(
                sorted(
                    (hit.session.context.session_id, hit.message_id, hit.seq, hit.snippet)
                    for hit in hits.items
                )
            )
    said.append(
        await store.read(lambda reads: sorted((turn.session_id, turn.turn_id) for turn in reads.open_turns()))
    )
    return said


def _timeless(outcome: object) -> object:
    if isinstance(outcome, StoredSession):
        return replace(outcome, created=from_stored(0), updated=from_stored(0))
    return outcome


def _clock() -> Callable[[], int]:
    return itertools.count(1_000_000).__next__
