"""Transactions, and what goes with them."""

import asyncio
from collections.abc import Callable

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Titled
from holdfast.model.ids import SessionId
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.store.rows import Appended, AuditRow, NewSession, SessionChange
from holdfast.store.store import Tx
from holdfast.testing.contract.given import Opener, approval, context, create


class Writing:
    """Tests that `StoreContract` inherits."""

    async def test_a_function_that_fails_leaves_nothing_behind(self, opener: Opener) -> None:
        async with opener() as store:
            session = await create(store)
            session_id = session.context.session_id

            def half(tx: Tx) -> None:
                tx.append(session_id, Titled(title="half"), "key")
                tx.change(session_id, SessionChange(tags=("half",)))
                tx.create(NewSession(context=context()))
                tx.approve(approval("half"))
                tx.audit_append(AuditRow(seq=1, body='{"session_id":"half"}', digest=b"half"))
                raise RuntimeError("half way")

            with pytest.raises(RuntimeError, match="half way"):
                await store.write(half)

            assert await store.session(session_id) == session
            assert [event async for event in store.events(session_id)] == []
            assert len((await store.sessions(SessionQuery(reach=OPERATOR))).items) == 1
            assert await store.read(lambda reads: (reads.approvals(), reads.audit_head())) == ((), None)

    async def test_one_failing_write_does_not_spoil_those_beside_it(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id

            def fail(tx: Tx) -> Appended:
                tx.append(session_id, Titled(title="bad"))
                raise RuntimeError("bad")

            def title(number: int) -> Callable[[Tx], Appended]:
                return lambda tx: tx.append(session_id, Titled(title=str(number)))

            writes = [store.write(fail if number % 3 == 0 else title(number)) for number in range(30)]
            outcomes = await asyncio.gather(*writes, return_exceptions=True)

            kept = [Titled(title=str(number)) for number in range(30) if number % 3]
            assert [isinstance(outcome, RuntimeError) for outcome in outcomes] == [
                number % 3 == 0 for number in range(30)
            ]
            assert [(stored.seq, stored.event) async for stored in store.events(session_id)] == list(
                enumerate(kept, start=1)
            )

    async def test_an_approval_is_for_exactly_one_content(self, opener: Opener) -> None:
        async with opener() as store:
            given = approval("server:files")
            await store.write(lambda tx: tx.approve(given))

            assert await store.read(lambda reads: reads.approval("server:files", given.content_hash)) == given
            assert await store.read(lambda reads: reads.approval("server:files", "other")) is None
            assert await store.read(lambda reads: reads.approval("server:file", given.content_hash)) is None
            assert await store.read(lambda reads: reads.approvals("server:")) == (given,)
            assert await store.read(lambda reads: reads.approvals("server:files:")) == ()
            assert await store.write(lambda tx: tx.revoke("server:files")) == 1
            assert await store.read(lambda reads: reads.approvals()) == ()

    async def test_the_audit_takes_lines_only_one_after_the_other(self, opener: Opener) -> None:
        async with opener() as store:
            rows = [
                AuditRow(seq=seq, body=f'{{"session_id":"s{seq % 2}"}}', digest=bytes([seq]))
                for seq in (1, 2, 3)
            ]
            for row in rows:
                await store.write(lambda tx, row=row: tx.audit_append(row))
            for seq in (0, 3, 5):
                with pytest.raises(ValueError, match="next line is 4"):
                    await store.write(
                        lambda tx, seq=seq: tx.audit_append(AuditRow(seq=seq, body="{}", digest=b""))
                    )

            assert await store.read(lambda reads: tuple(reads.audit_rows())) == tuple(rows)
            assert await store.read(lambda reads: tuple(reads.audit_rows(1))) == tuple(rows[1:])
            assert await store.read(lambda reads: tuple(reads.audit_rows(session_id=SessionId("s1")))) == (
                rows[0],
                rows[2],
            )
            assert await store.read(
                lambda reads: (reads.audit_head(), reads.audit_row(2), reads.audit_row(9))
            ) == (
                rows[2],
                rows[1],
                None,
            )

    async def test_two_stores_on_the_same_data_see_each_others_writes(self, opener: Opener) -> None:
        async with opener() as first, opener() as second:
            session_id = (await create(first)).context.session_id
            for number in range(20):
                writer = first if number % 2 else second
                assert await writer.append(session_id, Titled(title=str(number))) == Appended(
                    number + 1, new=True
                )

            assert await first.read(lambda reads: reads.store_id()) == await second.read(
                lambda reads: reads.store_id()
            )

    async def test_a_closed_store_says_so(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
        await store.close()

        for use in (store.append(session_id, Titled(title="late")), store.session(session_id)):
            with pytest.raises(HoldfastError) as refused:
                await use
            assert refused.value.code is codes.STORE_CLOSED

    async def test_chores_run_after_every_commit(self, opener: Opener) -> None:
        async with opener() as store:
            seen: list[int] = []
            session_id = (await create(store)).context.session_id
            store.after_commit(lambda reads: seen.append(len(reads.events(session_id))))

            for number in range(3):
                await store.append(session_id, Titled(title=str(number)))
            await store.write(lambda tx: tx.index())

            assert [number for number in dict.fromkeys(seen) if number] == [1, 2, 3]
