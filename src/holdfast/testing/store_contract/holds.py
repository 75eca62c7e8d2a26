"""Tests of holds: a session has one hold at a time, and nothing is written with an earlier hold."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Titled
from holdfast.model.ids import new_message_id, new_session_id, new_turn_id
from holdfast.store.lease import is_interrupted
from holdfast.store.owner import this_process
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.store import Store, Tx
from holdfast.store.types import Hold, InboxMessage, NewSession, SessionChange
from holdfast.testing.store_contract.factories import OpenStore, create_session, hold_session, make_prompt

ELSEWHERE = replace(this_process(), machine="elsewhere")
"""A process on another machine, so it cannot be checked whether it is alive."""


async def _append_in_batches(store: Store, hold: Hold) -> None:
    async with store.appender(hold) as appender:
        for number in range(3):
            await appender.append(Titled(title=str(number)))


def _message(hold: Hold) -> InboxMessage:
    return InboxMessage(
        message_id=new_message_id(),
        sender=hold.session_id,
        sender_title="",
        target=new_session_id(),
        text="late",
    )


WRITES: dict[str, Callable[[Store, Hold], Awaitable[object]]] = {
    "append": lambda store, hold: store.append(hold, Titled(title="late")),
    "append_many": lambda store, hold: store.write(lambda tx: tx.append_many(hold, [Titled(title="late")])),
    "appender": _append_in_batches,
    "change": lambda store, hold: store.write(lambda tx: tx.change(hold, SessionChange(title="late"))),
    "delete": lambda store, hold: store.write(lambda tx: tx.delete(hold)),
    "delete_part": lambda store, hold: store.write(lambda tx: tx.delete_part(hold)),
    "send": lambda store, hold: store.write(lambda tx: tx.send(hold, _message(hold))),
    "deliver": lambda store, hold: store.write(lambda tx: tx.deliver(hold, new_message_id())),
    "check": lambda store, hold: store.write(lambda tx: tx.check_hold(hold)),
}


class HoldTests:
    """Part of `StoreContract`."""

    async def test_session_with_a_live_owner_cannot_be_acquired(self, open_store: OpenStore) -> None:
        async with open_store() as first, open_store() as second:
            hold = await hold_session(first)
            lease = await second.read(lambda tx: tx.lease(hold.session_id))
            assert lease is not None
            assert (lease.epoch, lease.owner) == (hold.epoch, this_process())

            for store in (second, first):
                with pytest.raises(HoldfastError) as caught:
                    await store.acquire(hold.session_id)
                assert caught.value.code is codes.SESSION_HELD
                assert hold.session_id in caught.value.message
                assert caught.value.details["pid"] == lease.owner.pid

            await first.append(hold, Titled(title="still mine"))

    async def test_released_session_can_be_acquired_by_another_store(self, open_store: OpenStore) -> None:
        async with open_store() as first, open_store() as second:
            hold = await hold_session(first)

            await first.release(hold)
            await first.release(hold)

            assert (await second.acquire(hold.session_id)).epoch > hold.epoch

    async def test_epoch_rises_after_a_release_a_crash_and_a_deletion(self, open_store: OpenStore) -> None:
        async with open_store(owner=replace(this_process(), boot="earlier")) as dead, open_store() as store:
            created = await create_session(store)
            session_id = created.context.session_id
            holds = [await dead.acquire(session_id), await store.acquire(session_id)]
            await store.release(holds[-1])
            holds.append(await store.acquire(session_id))
            await store.write(lambda tx: tx.delete(holds[-1]))
            await store.create(NewSession(context=created.context))
            holds.append(await store.acquire(session_id))
            other = await hold_session(store)

            epochs = [hold.epoch for hold in (*holds, other)]
            assert epochs == sorted(set(epochs))
            for ended in holds[:-1]:
                with pytest.raises(HoldfastError) as caught:
                    await store.append(ended, Titled(title="late"))
                assert caught.value.code is codes.SESSION_HELD
            assert (await store.append(holds[-1], Titled(title="again"))).seq == 1

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    async def test_host_that_lost_its_session_writes_nothing(
        self, open_store: OpenStore, write: Callable[[Store, Hold], Awaitable[object]]
    ) -> None:
        async with open_store(lease_seconds=0, owner=ELSEWHERE) as asleep, open_store() as awake:
            old = await hold_session(asleep)
            await asleep.append(old, Titled(title="before"))
            hold = await awake.acquire(old.session_id)  # the lease of `asleep` has expired
            before = await awake.session(old.session_id)

            with pytest.raises(HoldfastError) as caught:
                await write(asleep, old)
            await asleep.release(old)

            assert "is no longer held" in caught.value.message
            assert await awake.session(old.session_id) == before
            await awake.append(hold, Titled(title="mine"))

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    async def test_earlier_hold_of_the_same_store_writes_nothing(
        self, open_store: OpenStore, write: Callable[[Store, Hold], Awaitable[object]]
    ) -> None:
        async with open_store(lease_seconds=0, owner=ELSEWHERE) as store:
            old = await hold_session(store)
            hold = await store.acquire(old.session_id)

            with pytest.raises(HoldfastError) as caught:
                await write(store, old)
            await store.release(old)

            assert caught.value.code is codes.SESSION_HELD
            assert (await store.append(hold, Titled(title="mine"))).seq == 1

    async def test_released_hold_writes_nothing_although_no_other_store_holds_the_session(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            await store.release(hold)

            for write in WRITES.values():
                with pytest.raises(HoldfastError) as caught:
                    await write(store, hold)
                assert caught.value.code is codes.SESSION_HELD

    async def test_hold_whose_acquisition_was_rolled_back_cannot_write(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session_id = (await create_session(store)).context.session_id
            holds: list[Hold] = []

            def acquire_and_fail(tx: Tx) -> None:
                holds.append(tx.acquire(session_id))
                tx.append(holds[0], Titled(title="rolled back"))
                raise RuntimeError("after the write")

            with pytest.raises(RuntimeError, match="after the write"):
                await store.write(acquire_and_fail)
            with pytest.raises(HoldfastError):
                await store.append(holds[0], Titled(title="late"))

            hold = await store.acquire(session_id)
            with pytest.raises(HoldfastError):
                await store.append(holds[0], Titled(title="late"))
            assert (await store.append(hold, Titled(title="mine"))).seq == 1

    async def test_closing_a_store_releases_its_sessions(self, open_store: OpenStore) -> None:
        async with open_store() as second:
            session_id, last = [(await create_session(second)).context.session_id for _ in range(2)]
            async with open_store() as first:
                await first.acquire(session_id)
                acquiring = asyncio.ensure_future(first.acquire(last))
                await asyncio.sleep(0)

            await acquiring
            leases = [await second.read(lambda tx, one=one: tx.lease(one)) for one in (session_id, last)]
            assert leases == [None, None]
            assert (await second.acquire(session_id)).session_id == session_id

    async def test_open_turn_is_interrupted_unless_a_live_owner_holds_the_session(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store, open_store() as other:
            hold = await hold_session(store)
            await store.append(hold, make_prompt("go", new_turn_id()))

            async def interrupted() -> list[bool]:
                one = await other.session(hold.session_id)
                page = await other.sessions(SessionQuery(visibility=ALL_SESSIONS))
                return [is_interrupted(stored) for stored in (one, *page.items) if stored]

            assert await interrupted() == [False, False]
            await store.release(hold)
            assert await interrupted() == [True, True]
