"""Tests of leases: a session has one owner at a time."""

import asyncio

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Titled
from holdfast.model.ids import new_turn_id
from holdfast.store import clock
from holdfast.store.lease import is_interrupted
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.types import NewSession
from holdfast.testing.store_contract.factories import OpenStore, create_session, make_prompt


class LeaseTests:
    """Part of `StoreContract`."""

    async def test_second_host_cannot_use_a_leased_session(self, open_store: OpenStore) -> None:
        async with open_store() as first, open_store() as second:
            session_id = (await create_session(first)).context.session_id
            lease = await first.acquire(session_id)

            for write in (
                second.acquire(session_id),
                second.append(session_id, Titled(title="mine")),
                second.write(lambda tx: tx.delete(session_id)),
                first.acquire(session_id),
            ):
                with pytest.raises(HoldfastError) as caught:
                    await write
                assert caught.value.code is codes.SESSION_HELD
                assert str(lease.owner) in caught.value.message
                assert caught.value.details["pid"] == lease.owner.pid

            await first.append(session_id, Titled(title="still mine"))
            seen = await second.read(lambda tx: tx.lease(session_id))
            assert seen is not None
            assert (seen.holder, seen.owner) == (lease.holder, lease.owner)

    async def test_released_session_can_be_acquired_by_another_host(self, open_store: OpenStore) -> None:
        async with open_store() as first, open_store() as second:
            session_id = (await create_session(first)).context.session_id
            await first.acquire(session_id)
            await second.release(session_id)
            with pytest.raises(HoldfastError):
                await second.acquire(session_id)

            await first.release(session_id)

            assert (await second.acquire(session_id)).session_id == session_id

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

    async def test_deleting_a_session_releases_it(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            created = await create_session(store)
            session_id = created.context.session_id
            await store.acquire(session_id)
            await store.write(lambda tx: tx.delete(session_id))
            await store.create(NewSession(context=created.context))

            assert (await store.append(session_id, Titled(title="again"))).seq == 1

    async def test_open_turn_is_interrupted_unless_a_live_owner_holds_the_session(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store, open_store() as other:
            session_id = (await create_session(store)).context.session_id
            await store.append(session_id, make_prompt("go", new_turn_id()))

            async def interrupted() -> list[bool]:
                one = await other.session(session_id)
                page = await other.sessions(SessionQuery(visibility=ALL_SESSIONS))
                return [is_interrupted(stored, clock.now()) for stored in (one, *page.items) if stored]

            assert await interrupted() == [True, True]
            await store.acquire(session_id)
            assert await interrupted() == [False, False]
            await store.release(session_id)
            assert await interrupted() == [True, True]
