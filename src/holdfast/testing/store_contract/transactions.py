"""Tests of transactions, approvals, audit rows and commit hooks."""

import asyncio
from collections.abc import Callable

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Titled
from holdfast.model.ids import SessionId
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.store import Tx
from holdfast.store.types import AppendResult, AuditRow, NewSession, SessionChange
from holdfast.testing.store_contract.factories import OpenStore, create_session, make_approval, make_context


class TransactionTests:
    """Part of `StoreContract`."""

    async def test_failed_write_leaves_nothing(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session = await create_session(store)
            session_id = session.context.session_id

            def fail_half_way(tx: Tx) -> None:
                tx.append(session_id, Titled(title="half"), "key")
                tx.change(session_id, SessionChange(tags=("half",)))
                tx.create(NewSession(context=make_context()))
                tx.approve(make_approval("half"))
                tx.audit_append(AuditRow(seq=1, body='{"session_id":"half"}', digest=b"half"))
                raise RuntimeError("half way")

            with pytest.raises(RuntimeError, match="half way"):
                await store.write(fail_half_way)

            assert await store.session(session_id) == session
            assert [event async for event in store.events(session_id)] == []
            assert len((await store.sessions(SessionQuery(visibility=ALL_SESSIONS))).items) == 1
            assert await store.read(lambda tx: (tx.approvals(), tx.audit_head())) == ((), None)

    async def test_failed_write_does_not_affect_concurrent_writes(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session_id = (await create_session(store)).context.session_id

            def fail(tx: Tx) -> AppendResult:
                tx.append(session_id, Titled(title="bad"))
                raise RuntimeError("bad")

            def title(number: int) -> Callable[[Tx], AppendResult]:
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

    async def test_approvals_are_found_by_the_prefix_of_their_name(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            approval = make_approval("server:files")
            await store.write(lambda tx: tx.approve(approval))

            assert await store.read(lambda tx: tx.approvals("server:")) == (approval,)
            assert await store.read(lambda tx: tx.approvals("server:files:")) == ()
            assert await store.read(lambda tx: tx.approvals()) == (approval,)

    async def test_approvals_are_removed_by_the_prefix_of_their_name(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            for name in ("pin:a:x", "pin:a:y", "pin:ab:x"):
                await store.write(lambda tx, name=name: tx.approve(make_approval(name)))

            await store.write(lambda tx: tx.remove_approvals("pin:a:"))

            left = await store.read(lambda tx: tx.approvals())
            assert [approval.key for approval in left] == ["pin:ab:x"]

    async def test_audit_rows_must_be_appended_in_sequence(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            rows = [
                AuditRow(seq=seq, body=f'{{"session_id":"s{seq % 2}"}}', digest=bytes([seq]))
                for seq in (1, 2, 3)
            ]
            for row in rows:
                await store.write(lambda tx, row=row: tx.audit_append(row))
            for seq in (0, 3, 5):
                with pytest.raises(ValueError, match="next row is 4"):
                    await store.write(
                        lambda tx, seq=seq: tx.audit_append(AuditRow(seq=seq, body="{}", digest=b""))
                    )

            assert await store.read(lambda tx: tuple(tx.audit_rows())) == tuple(rows)
            assert await store.read(lambda tx: tuple(tx.audit_rows(1))) == tuple(rows[1:])
            assert await store.read(lambda tx: tuple(tx.audit_rows(session_id=SessionId("s1")))) == (
                rows[0],
                rows[2],
            )
            assert await store.read(lambda tx: (tx.audit_head(), tx.audit_row(2), tx.audit_row(9))) == (
                rows[2],
                rows[1],
                None,
            )

    async def test_two_stores_on_the_same_data_see_each_others_writes(self, open_store: OpenStore) -> None:
        async with open_store() as first, open_store() as second:
            session_id = (await create_session(first)).context.session_id
            for number in range(20):
                writer = first if number % 2 else second
                assert await writer.append(session_id, Titled(title=str(number))) == AppendResult(
                    number + 1, is_new=True
                )

            assert await first.read(lambda tx: tx.store_id()) == await second.read(lambda tx: tx.store_id())

    async def test_closed_store_refuses_reads_and_writes(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session_id = (await create_session(store)).context.session_id
        await store.close()

        for use in (store.append(session_id, Titled(title="late")), store.session(session_id)):
            with pytest.raises(HoldfastError) as caught:
                await use
            assert caught.value.code is codes.STORE_CLOSED

    async def test_hooks_run_after_every_commit(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            seen: list[int] = []
            session_id = (await create_session(store)).context.session_id
            store.after_commit(lambda tx: seen.append(len(tx.events(session_id))))

            for number in range(3):
                await store.append(session_id, Titled(title=str(number)))
            await store.write(lambda tx: tx.index_messages())

            assert [number for number in dict.fromkeys(seen) if number] == [1, 2, 3]
