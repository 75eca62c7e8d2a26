"""One owner at a time."""

import asyncio

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Titled
from holdfast.model.ids import new_turn_id
from holdfast.store import clock
from holdfast.store.lease import is_interrupted
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.store.rows import NewSession
from holdfast.testing.contract.given import Opener, create, prompted


class Holding:
    """Tests that `StoreContract` inherits."""

    async def test_a_session_that_is_held_is_refused_to_a_second_host(self, opener: Opener) -> None:
        async with opener() as first, opener() as second:
            session_id = (await create(first)).context.session_id
            lease = await first.hold(session_id)

            for write in (
                second.hold(session_id),
                second.append(session_id, Titled(title="mine")),
                second.write(lambda tx: tx.delete(session_id)),
                first.hold(session_id),
            ):
                with pytest.raises(HoldfastError) as refused:
                    await write
                assert refused.value.code is codes.SESSION_HELD
                assert str(lease.owner) in refused.value.message
                assert refused.value.details["pid"] == lease.owner.pid

            await first.append(session_id, Titled(title="still mine"))
            seen = await second.read(lambda reads: reads.lease(session_id))
            assert seen is not None
            assert (seen.holder, seen.owner) == (lease.holder, lease.owner)

    async def test_a_session_that_was_let_go_can_be_held_by_another(self, opener: Opener) -> None:
        async with opener() as first, opener() as second:
            session_id = (await create(first)).context.session_id
            await first.hold(session_id)
            await second.let_go(session_id)
            with pytest.raises(HoldfastError):
                await second.hold(session_id)

            await first.let_go(session_id)

            assert (await second.hold(session_id)).session_id == session_id

    async def test_closing_a_store_lets_go_of_its_sessions(self, opener: Opener) -> None:
        async with opener() as second:
            session_id, last = [(await create(second)).context.session_id for _ in range(2)]
            async with opener() as first:
                await first.hold(session_id)
                asking = asyncio.ensure_future(first.hold(last))
                await asyncio.sleep(0)

            await asking
            leases = [
                await second.read(lambda reads, one=one: reads.lease(one)) for one in (session_id, last)
            ]
            assert leases == [None, None]
            assert (await second.hold(session_id)).session_id == session_id

    async def test_a_deleted_session_is_held_by_nobody(self, opener: Opener) -> None:
        async with opener() as store:
            created = await create(store)
            session_id = created.context.session_id
            await store.hold(session_id)
            await store.write(lambda tx: tx.delete(session_id))
            await store.create(NewSession(context=created.context))

            assert (await store.append(session_id, Titled(title="again"))).seq == 1

    async def test_an_open_turn_is_interrupted_unless_a_live_owner_holds_the_session(
        self, opener: Opener
    ) -> None:
        async with opener() as store, opener() as other:
            session_id = (await create(store)).context.session_id
            await store.append(session_id, prompted("go", new_turn_id()))

            async def interrupted() -> list[bool]:
                one = await other.session(session_id)
                page = await other.sessions(SessionQuery(reach=OPERATOR))
                return [is_interrupted(stored, clock.now()) for stored in (one, *page.items) if stored]

            assert await interrupted() == [True, True]
            await store.hold(session_id)
            assert await interrupted() == [False, False]
            await store.let_go(session_id)
            assert await interrupted() == [True, True]
