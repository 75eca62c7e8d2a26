"""Tests of events: they are stored once, in order and without a gap."""

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, Replied, StopReason, Thought, Titled, ToolEnded, TurnEnded
from holdfast.model.ids import new_turn_id
from holdfast.store.interrupted import end_interrupted
from holdfast.store.query import ALL_SESSIONS, SearchQuery
from holdfast.store.types import AppendResult
from holdfast.testing.store_contract.factories import (
    OpenStore,
    add_turn,
    create_session,
    make_call,
    make_prompt,
)


class EventTests:
    """Part of `StoreContract`."""

    async def test_events_are_numbered_from_one_without_a_gap(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            first, second = await create_session(store), await create_session(store)
            for number in range(2500):
                event = Thought(message_id="msg_1", text=str(number))
                await store.write(lambda tx, event=event: tx.append(first.context.session_id, event))
                if number % 500 == 0:
                    await store.append(second.context.session_id, event)

            events = [stored async for stored in store.events(first.context.session_id)]

            assert [stored.seq for stored in events] == list(range(1, 2501))
            assert [stored.event for stored in events] == [
                Thought(message_id="msg_1", text=str(number)) for number in range(2500)
            ]
            assert [stored.seq async for stored in store.events(second.context.session_id)] == [1, 2, 3, 4, 5]

    async def test_events_can_be_read_from_any_number(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session_id = (await create_session(store)).context.session_id
            for number in range(10):
                await store.append(session_id, Titled(title=str(number)), key=f"title {number}")

            some = await store.read(lambda tx: tx.events(session_id, 3, 2))

            assert [(stored.seq, stored.event, stored.key) for stored in some] == [
                (4, Titled(title="3"), "title 3"),
                (5, Titled(title="4"), "title 4"),
            ]

    async def test_retry_with_the_same_key_adds_nothing(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            first, second = await create_session(store), await create_session(store)
            event = Replied(message_id="msg_1", text="once")

            results = [await store.append(first.context.session_id, event, "key") for _ in range(2)]
            elsewhere = await store.append(second.context.session_id, event, "key")

            assert results == [AppendResult(1, is_new=True), AppendResult(1, is_new=False)]
            assert elsewhere == AppendResult(1, is_new=True)
            assert [stored.event async for stored in store.events(first.context.session_id)] == [event]

    async def test_a_key_cannot_be_reused_for_a_different_event(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session_id = (await create_session(store)).context.session_id
            await store.append(session_id, Titled(title="one"), "key")

            with pytest.raises(HoldfastError) as caught:
                await store.append(session_id, Titled(title="two"), "key")

            assert caught.value.code is codes.KEY_REUSED
            assert [stored.event async for stored in store.events(session_id)] == [Titled(title="one")]

    async def test_append_many_adds_events_in_order(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session_id = (await create_session(store)).context.session_id
            events = [Replied(message_id="m", text=f"rose{number} ") for number in range(1500)]

            added = await store.write(lambda tx: tx.append_many(session_id, events))
            await store.append(session_id, TurnEnded(turn_id="t", reason=StopReason.END_TURN))

            assert added == [AppendResult(seq, is_new=True) for seq in range(1, 1501)]
            stored = [stored async for stored in store.events(session_id)]
            assert [event.event for event in stored[:-1]] == events
            assert [event.seq for event in stored] == list(range(1, 1502))
            hits = await store.search(SearchQuery(visibility=ALL_SESSIONS, words="rose1499"))
            assert len(hits.items) == 1

    async def test_open_turn_is_ended_as_interrupted_once(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            complete, interrupted = await create_session(store), await create_session(store)
            await add_turn(store, complete.context.session_id, "a complete turn")
            turn = new_turn_id()
            await store.append(interrupted.context.session_id, make_prompt("a turn without an end", turn))
            await store.append(interrupted.context.session_id, Replied(message_id="msg_1", text="I was say"))

            for session_id in (complete.context.session_id, interrupted.context.session_id) * 2:
                await store.write(lambda tx, session_id=session_id: end_interrupted(tx, session_id))

            events = [stored.event async for stored in store.events(interrupted.context.session_id)]
            assert events[2:] == [TurnEnded(turn_id=turn, reason=StopReason.INTERRUPTED)]
            sessions = [
                await store.session(session.context.session_id) for session in (complete, interrupted)
            ]
            assert [session and (session.last_seq, session.open_turn) for session in sessions] == [
                (2, ""),
                (3, ""),
            ]

    async def test_open_call_is_ended_as_interrupted_once(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session_id = (await create_session(store)).context.session_id
            ended_call, open_call = make_call("call_ended"), make_call("call_open")
            for event in (ended_call, open_call, ToolEnded(call_id="call_ended", outcome=Outcome.COMPLETED)):
                await store.append(session_id, event)
            interrupted: list[str] = []
            assert await store.read(lambda tx: tx.open_calls(session_id)) == (open_call,)

            for _ in range(2):
                await store.write(
                    lambda tx: end_interrupted(tx, session_id, lambda call: interrupted.append(call.call_id))
                )

            assert interrupted == ["call_open"]
            assert await store.read(lambda tx: tx.open_calls(session_id)) == ()
            *_, ended = [stored.event async for stored in store.events(session_id)]
            assert isinstance(ended, ToolEnded)
            assert (ended.call_id, ended.outcome, ended.code) == (
                "call_open",
                Outcome.CANCELLED,
                "INTERRUPTED",
            )

    async def test_only_the_first_end_of_a_call_or_turn_is_stored(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session_id = (await create_session(store)).context.session_id
            turn = new_turn_id()
            first = [
                make_prompt("go", turn),
                make_call("call_1"),
                ToolEnded(call_id="call_1", outcome=Outcome.COMPLETED),
                TurnEnded(turn_id=turn, reason=StopReason.END_TURN),
            ]
            again = [
                make_call("call_1"),
                ToolEnded(call_id="call_1", outcome=Outcome.CANCELLED),
                TurnEnded(turn_id=turn, reason=StopReason.INTERRUPTED),
            ]
            new = [(await store.append(session_id, event)).is_new for event in (*first, *again)]
            many = await store.write(lambda tx: tx.append_many(session_id, again[:2]))
            await store.append(session_id, make_call("call_2"))

            assert new == [True] * 4 + [False] * 3
            assert [appended.is_new for appended in many] == [False, False]
            assert [stored.event async for stored in store.events(session_id)] == [
                *first,
                make_call("call_2"),
            ]
            assert await store.read(lambda tx: tx.open_calls(session_id)) == (make_call("call_2"),)

    async def test_event_that_cannot_be_encoded_is_refused(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session_id = (await create_session(store)).context.session_id

            with pytest.raises(HoldfastError) as caught:
                await store.append(session_id, Titled(title="a lone surrogate: \ud800"))

            assert caught.value.code is codes.UNSTORABLE
