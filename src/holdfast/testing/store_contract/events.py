"""Tests of events: they are stored once, in order and without a gap."""

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Origin,
    Outcome,
    Replied,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UnknownEvent,
)
from holdfast.model.ids import new_turn_id
from holdfast.store.end_interrupted import end_interrupted
from holdfast.store.query import ALL_SESSIONS, SearchQuery
from holdfast.store.store import Tx
from holdfast.testing.store_contract.factories import (
    OpenStore,
    add_turn,
    hold_session,
    make_call,
    make_prompt,
)


class EventTests:
    """Part of `StoreContract`."""

    async def test_events_are_numbered_from_one_without_a_gap(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            first, second = await hold_session(store), await hold_session(store)
            for number in range(2500):
                event = Thought(message_id="msg_1", text=str(number))
                await store.write(lambda tx, event=event: tx.append(first, event))
                if number % 500 == 0:
                    await store.append(second, event)

            events = [stored async for stored in store.events(first.session_id)]

            assert [stored.seq for stored in events] == list(range(1, 2501))
            assert [stored.event for stored in events] == [
                Thought(message_id="msg_1", text=str(number)) for number in range(2500)
            ]
            assert [stored.seq async for stored in store.events(second.session_id)] == [1, 2, 3, 4, 5]

    async def test_events_are_read_after_a_number_up_to_a_limit(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id
            for number in range(10):
                await store.append(hold, Titled(title=str(number)), key=f"title {number}")

            some = await store.read(lambda tx: tx.events(session_id, 3, 2))

            assert [(stored.seq, stored.event, stored.key) for stored in some] == [
                (4, Titled(title="3"), "title 3"),
                (5, Titled(title="4"), "title 4"),
            ]

    async def test_appending_again_with_the_same_key_adds_nothing_to_the_session(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            first, second = await hold_session(store), await hold_session(store)
            event = Replied(message_id="msg_1", text="once")

            results = [await store.append(first, event, "key") for _ in range(2)]
            elsewhere = await store.append(second, event, "key")

            assert [(result.seq, result.is_new) for result in (*results, elsewhere)] == [
                (1, True),
                (1, False),
                (1, True),
            ]
            assert results[0].at_microseconds == results[1].at_microseconds
            assert [stored.event async for stored in store.events(first.session_id)] == [event]

    async def test_a_key_cannot_be_reused_for_a_different_event(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id
            await store.append(hold, Titled(title="one"), "key")

            with pytest.raises(HoldfastError) as caught:
                await store.append(hold, Titled(title="two"), "key")

            assert caught.value.code is codes.KEY_REUSED
            assert [stored.event async for stored in store.events(session_id)] == [Titled(title="one")]

    async def test_servers_count_as_used_when_a_call_has_started(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold, other = await hold_session(store), await hold_session(store)

            def write(tx: Tx) -> None:
                for call_id, server, starts in (("1", "a", True), ("2", "b", False), ("3", "a", True)):
                    tx.append(hold, ToolCalled(call_id=call_id, server=server, tool="t", arguments={}))
                    if starts:
                        tx.append(hold, ToolStarted(call_id=call_id))

            await store.write(write)

            assert await store.read(lambda tx: tx.used_servers(hold.session_id)) == {"a"}
            assert await store.read(lambda tx: tx.used_servers(other.session_id)) == frozenset()

    async def test_append_many_adds_events_in_order(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id
            events = [Replied(message_id="m", text=f"rose{number} ") for number in range(1500)]

            assert await store.read(lambda tx: tx.stored_bytes(session_id)) == 0
            added = await store.write(lambda tx: tx.append_many(hold, events))
            last = await store.append(hold, TurnEnded(turn_id="t", reason=StopReason.END_TURN))

            assert [(one.seq, one.is_new) for one in added] == [(seq, True) for seq in range(1, 1501)]
            stored = [stored async for stored in store.events(session_id)]
            assert [event.at_microseconds for event in stored[:-1]] == [one.at_microseconds for one in added]
            assert [event.event for event in stored[:-1]] == events
            assert [event.seq for event in stored] == list(range(1, 1502))
            sizes = sum(one.size for one in (*added, last))
            assert await store.read(lambda tx: tx.stored_bytes(session_id)) == sizes > 1500 * len("rose")
            hits = await store.search(SearchQuery(visibility=ALL_SESSIONS, words="rose1499"))
            assert len(hits.items) == 1

    async def test_open_turn_is_ended_once_as_interrupted(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            complete, interrupted = await hold_session(store), await hold_session(store)
            await add_turn(store, complete, "a complete turn")
            turn = new_turn_id()
            await store.append(interrupted, make_prompt("a turn without an end", turn))
            await store.append(interrupted, Replied(message_id="msg_1", text="I was say"))

            for hold in (complete, interrupted) * 2:
                await store.write(lambda tx, hold=hold: end_interrupted(tx, hold))

            events = [stored.event async for stored in store.events(interrupted.session_id)]
            assert events[2:] == [TurnEnded(turn_id=turn, reason=StopReason.INTERRUPTED)]
            sessions = [await store.session(hold.session_id) for hold in (complete, interrupted)]
            assert [session and (session.last_seq, session.open_turn) for session in sessions] == [
                (2, ""),
                (3, ""),
            ]

    async def test_open_call_is_ended_once_as_interrupted(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id
            ended_call, open_call = make_call("call_ended"), make_call("call_open")
            for event in (ended_call, open_call, ToolEnded(call_id="call_ended", outcome=Outcome.COMPLETED)):
                await store.append(hold, event)
            open_calls = await store.read(lambda tx: tx.open_calls(session_id))
            assert [(stored.seq, stored.event) for stored in open_calls] == [(2, open_call)]

            def end(tx: Tx) -> list[str]:
                ended: list[str] = []
                end_interrupted(tx, hold, lambda call: ended.append(call.call_id))
                return ended

            assert [await store.write(end) for _ in range(2)] == [["call_open"], []]
            assert await store.read(lambda tx: tx.open_calls(session_id)) == ()
            *_, ended = [stored.event async for stored in store.events(session_id)]
            assert isinstance(ended, ToolEnded)
            assert (ended.call_id, ended.outcome, ended.code) == (
                "call_open",
                Outcome.CANCELLED,
                "INTERRUPTED",
            )

    async def test_a_call_is_stored_once_and_ends_once_and_a_turn_ends_once(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id
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
            new = [(await store.append(hold, event)).is_new for event in (*first, *again)]
            many = await store.write(lambda tx: tx.append_many(hold, again[:2]))
            await store.append(hold, make_call("call_2"))

            assert new == [True] * 4 + [False] * 3
            assert [appended.is_new for appended in many] == [False, False]
            assert [stored.event async for stored in store.events(session_id)] == [
                *first,
                make_call("call_2"),
            ]
            open_calls = await store.read(lambda tx: tx.open_calls(session_id))
            assert [stored.event for stored in open_calls] == [make_call("call_2")]

    async def test_event_that_cannot_be_encoded_is_refused(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)

            with pytest.raises(HoldfastError) as caught:
                await store.append(hold, Titled(title="a lone surrogate: \ud800"))

            assert caught.value.code is codes.UNSTORABLE

    async def test_event_keeps_its_agent_parent_call_and_cause(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store, title="Roses")
            origin = Origin(agent="agent_1", parent_call="call_1", cause="msg_9")
            pieces = [Replied(message_id="msg_1", text=text) for text in ("tu", "lips")]

            await store.append(hold, Titled(title="Tulips"), origin=origin)
            await store.write(lambda tx: tx.append_many(hold, pieces, origin))
            async with store.appender(hold) as appender:
                await appender.append(Thought(message_id="msg_2", text="mine"))
                await appender.append(Thought(message_id="msg_3", text="theirs"), origin=origin)
            events = [stored async for stored in store.events(hold.session_id)]

            assert [(stored.agent, stored.parent_call, stored.cause) for stored in events] == [
                *[("agent_1", "call_1", "msg_9")] * 3,
                ("", "", ""),
                ("agent_1", "call_1", "msg_9"),
            ]
            assert [stored.origin == origin for stored in events] == [True, True, True, False, True]

    async def test_events_of_a_sub_agent_do_not_change_the_session(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store, title="Roses")
            await store.append(hold, make_prompt("mine", "turn_1"))
            origin = Origin(agent="agent_1", parent_call="call_1")
            for event in (Titled(title="Tulips"), make_prompt("theirs", "turn_2"), make_call("call_2")):
                await store.append(hold, event, origin=origin)

            stored = await store.session(hold.session_id)
            await store.write(lambda tx: end_interrupted(tx, hold))

            assert stored is not None
            assert (stored.title, stored.open_turn) == ("Roses", "turn_1")
            ends = [stored async for stored in store.events(hold.session_id, after=4)]
            assert [(type(stored.event), stored.origin) for stored in ends] == [
                (ToolEnded, origin),
                (TurnEnded, Origin()),
            ]
            hits = await store.search(SearchQuery(visibility=ALL_SESSIONS, words="theirs"))
            assert len(hits.items) == 1

    async def test_event_of_an_unknown_kind_is_kept_as_it_is(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            unknown = UnknownEvent(kind="danced", body=b'{ "step" : [1,  2.50] }')

            await store.append(hold, unknown, "once")
            await store.append(hold, unknown, "once")
            await store.write(lambda tx: tx.append_many(hold, [unknown, Replied(message_id="m", text="x")]))

            events = [stored.event async for stored in store.events(hold.session_id)]
            assert events == [unknown, unknown, Replied(message_id="m", text="x")]
            session = await store.session(hold.session_id)
            assert session is not None
            assert (session.last_seq, session.open_turn) == (3, "")

    @pytest.mark.parametrize(
        "unknown",
        [UnknownEvent(kind="danced", body=b"[]"), UnknownEvent(kind="titled", body=b'{"title":"x"}')],
    )
    async def test_unknown_event_is_refused_if_its_kind_is_known_or_its_body_is_not_an_object(
        self, open_store: OpenStore, unknown: UnknownEvent
    ) -> None:
        async with open_store() as store:
            hold = await hold_session(store)

            with pytest.raises(HoldfastError) as caught:
                await store.append(hold, unknown)

            assert caught.value.code is codes.UNSTORABLE
