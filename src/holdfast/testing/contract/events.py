"""The log of a session: every event once, in order, without a gap."""

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, Replied, StopReason, Thought, Titled, ToolEnded, TurnEnded
from holdfast.model.ids import new_turn_id
from holdfast.store.interrupted import end_interrupted
from holdfast.store.query import OPERATOR, SearchQuery
from holdfast.store.rows import Appended
from holdfast.testing.contract.given import Opener, called, create, prompted, say


class Events:
    """Tests that `StoreContract` inherits."""

    async def test_events_are_numbered_from_one_without_a_gap(self, opener: Opener) -> None:
        async with opener() as store:
            first, second = await create(store), await create(store)
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

    async def test_events_can_be_read_from_any_place(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            for number in range(10):
                await store.append(session_id, Titled(title=str(number)), key=f"title {number}")

            some = await store.read(lambda reads: reads.events(session_id, 3, 2))

            assert [(stored.seq, stored.event, stored.key) for stored in some] == [
                (4, Titled(title="3"), "title 3"),
                (5, Titled(title="4"), "title 4"),
            ]

    async def test_a_retry_with_the_same_key_adds_nothing(self, opener: Opener) -> None:
        async with opener() as store:
            first, second = await create(store), await create(store)
            event = Replied(message_id="msg_1", text="once")

            told = [await store.append(first.context.session_id, event, "key") for _ in range(2)]
            elsewhere = await store.append(second.context.session_id, event, "key")

            assert told == [Appended(1, new=True), Appended(1, new=False)]
            assert elsewhere == Appended(1, new=True)
            assert [stored.event async for stored in store.events(first.context.session_id)] == [event]

    async def test_a_key_is_refused_to_a_different_event(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            await store.append(session_id, Titled(title="one"), "key")

            with pytest.raises(HoldfastError) as refused:
                await store.append(session_id, Titled(title="two"), "key")

            assert refused.value.code is codes.KEY_REUSED
            assert [stored.event async for stored in store.events(session_id)] == [Titled(title="one")]

    async def test_many_events_of_a_turn_can_be_added_at_once(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            events = [Replied(message_id="m", text=f"rose{number} ") for number in range(1500)]

            added = await store.write(lambda tx: tx.append_many(session_id, events))
            await store.append(session_id, TurnEnded(turn_id="t", reason=StopReason.END_TURN))

            assert added == [Appended(seq, new=True) for seq in range(1, 1501)]
            stored = [stored async for stored in store.events(session_id)]
            assert [event.event for event in stored[:-1]] == events
            assert [event.seq for event in stored] == list(range(1, 1502))
            hits = await store.search(SearchQuery(reach=OPERATOR, words="rose1499"))
            assert len(hits.items) == 1

    async def test_a_turn_without_an_end_is_ended_as_interrupted_once(self, opener: Opener) -> None:
        async with opener() as store:
            whole, cut = await create(store), await create(store)
            await say(store, whole.context.session_id, "a whole turn")
            turn = new_turn_id()
            await store.append(cut.context.session_id, prompted("cut off", turn))
            await store.append(cut.context.session_id, Replied(message_id="msg_1", text="I was say"))
            (open_turn,) = await store.read(lambda reads: reads.open_turns())
            assert (open_turn.session_id, open_turn.turn_id) == (cut.context.session_id, turn)

            told = [
                await store.write(lambda tx: end_interrupted(tx, cut.context.session_id)) for _ in range(2)
            ]

            assert told == [open_turn, None]
            assert await store.write(lambda tx: end_interrupted(tx, whole.context.session_id)) is None
            assert await store.read(lambda reads: reads.open_turns()) == ()
            events = [stored.event async for stored in store.events(cut.context.session_id)]
            assert events[2:] == [TurnEnded(turn_id=turn, reason=StopReason.INTERRUPTED)]

    async def test_a_call_without_an_end_is_ended_as_interrupted_once(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            over, cut = called("call_over"), called("call_cut")
            for event in (over, cut, ToolEnded(call_id="call_over", outcome=Outcome.COMPLETED)):
                await store.append(session_id, event)
            noted: list[str] = []
            assert await store.read(lambda reads: reads.open_calls(session_id)) == (cut,)

            for _ in range(2):
                await store.write(
                    lambda tx: end_interrupted(tx, session_id, lambda call: noted.append(call.call_id))
                )

            assert noted == ["call_cut"]
            assert await store.read(lambda reads: reads.open_calls(session_id)) == ()
            *_, ended = [stored.event async for stored in store.events(session_id)]
            assert isinstance(ended, ToolEnded)
            assert (ended.call_id, ended.outcome, ended.code) == (
                "call_cut",
                Outcome.CANCELLED,
                "INTERRUPTED",
            )

    async def test_a_call_and_a_turn_end_once_and_the_first_end_counts(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            turn = new_turn_id()
            first = [
                prompted("go", turn),
                called("call_1"),
                ToolEnded(call_id="call_1", outcome=Outcome.COMPLETED),
                TurnEnded(turn_id=turn, reason=StopReason.END_TURN),
            ]
            again = [
                called("call_1"),
                ToolEnded(call_id="call_1", outcome=Outcome.CANCELLED),
                TurnEnded(turn_id=turn, reason=StopReason.INTERRUPTED),
            ]
            new = [(await store.append(session_id, event)).new for event in (*first, *again)]
            many = await store.write(lambda tx: tx.append_many(session_id, again[:2]))
            await store.append(session_id, called("call_2"))

            assert new == [True] * 4 + [False] * 3
            assert [appended.new for appended in many] == [False, False]
            assert [stored.event async for stored in store.events(session_id)] == [*first, called("call_2")]
            assert await store.read(lambda reads: reads.open_calls(session_id)) == (called("call_2"),)

    async def test_what_cannot_be_written_down_is_refused(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id

            with pytest.raises(HoldfastError) as refused:
                await store.append(session_id, Titled(title="half a character: \ud800"))

            assert refused.value.code is codes.UNSTORABLE
