"""Tests of transactions, approvals, audit rows and commit hooks."""

import asyncio
from collections.abc import Callable

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, Titled, ToolEnded
from holdfast.model.ids import SessionId
from holdfast.store.anchor import Head
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.store import Tx
from holdfast.store.types import AppendResult, AuditRow, NewSession, SessionChange
from holdfast.testing.store_contract.factories import OpenStore, hold_session, make_approval, make_context


class TransactionTests:
    """Part of `StoreContract`."""

    async def test_failed_write_leaves_nothing(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id, session = hold.session_id, await store.session(hold.session_id)

            def fail_half_way(tx: Tx) -> None:
                tx.append(hold, Titled(title="half"), "key")
                tx.change(hold, SessionChange(tags=("half",)))
                tx.create(NewSession(context=make_context()))
                tx.approve(make_approval("half"))
                tx.audit_append(AuditRow(seq=1, body='{"session_id":"half"}', digest=b"half"))
                tx.release(hold)
                raise RuntimeError("half way")

            with pytest.raises(RuntimeError, match="half way"):
                await store.write(fail_half_way)

            assert await store.session(session_id) == session
            assert [event async for event in store.events(session_id)] == []
            assert len((await store.sessions(SessionQuery(visibility=ALL_SESSIONS))).items) == 1
            assert await store.read(lambda tx: (tx.approvals(), tx.audit_head())) == ((), None)

    async def test_failed_write_does_not_affect_concurrent_writes(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id

            def fail(tx: Tx) -> AppendResult:
                tx.append(hold, Titled(title="bad"))
                raise RuntimeError("bad")

            def title(number: int) -> Callable[[Tx], AppendResult]:
                return lambda tx: tx.append(hold, Titled(title=str(number)))

            writes = [store.write(fail if number % 3 == 0 else title(number)) for number in range(30)]
            outcomes = await asyncio.gather(*writes, return_exceptions=True)

            kept = [Titled(title=str(number)) for number in range(30) if number % 3]
            assert [isinstance(outcome, RuntimeError) for outcome in outcomes] == [
                number % 3 == 0 for number in range(30)
            ]
            assert [(stored.seq, stored.event) async for stored in store.events(session_id)] == list(
                enumerate(kept, start=1)
            )

    async def test_approvals_are_found_by_the_prefix_of_their_key(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            approval = make_approval('["server", "/home/ada/shop/.mcp.json", "files"]')
            await store.write(lambda tx: tx.approve(approval))

            assert await store.read(lambda tx: tx.approvals('["server", ')) == (approval,)
            assert await store.read(lambda tx: tx.approvals('["server", "/home/ada/shop/')) == (approval,)
            assert await store.read(lambda tx: tx.approvals('["server", "/home/ada/shop_')) == ()
            assert await store.read(lambda tx: tx.approvals('"server"')) == ()
            assert await store.read(lambda tx: tx.approvals()) == (approval,)

    async def test_approvals_are_removed_by_the_prefix_of_their_key(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            for server, tool in (("git", "log"), ("git", "push"), ("github", "log")):
                approval = make_approval(f'["pin", "ada", "{server}", "{tool}"]')
                await store.write(lambda tx, approval=approval: tx.approve(approval))

            await store.write(lambda tx: tx.remove_approvals('["pin", "ada", "git", '))

            left = await store.read(lambda tx: tx.approvals())
            assert [approval.key for approval in left] == ['["pin", "ada", "github", "log"]']

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

    async def test_each_hash_chain_of_the_audit_is_numbered_from_1(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            body = '{"session_id":"s"}'
            rows = [AuditRow(book=book, seq=seq, body=body, digest=b"d") for book in (0, 7) for seq in (1, 2)]
            for row in rows:
                await store.write(lambda tx, row=row: tx.audit_append(row))
            with pytest.raises(ValueError, match="next row is 3"):
                await store.write(lambda tx: tx.audit_append(rows[0]))

            assert await store.read(lambda tx: tuple(tx.audit_rows())) == tuple(rows[:2])
            assert await store.read(lambda tx: tuple(tx.audit_rows(1, SessionId("s"), 7))) == (rows[3],)
            assert await store.read(lambda tx: (tx.audit_head(7), tx.audit_row(1, 7), tx.audit_head(1))) == (
                rows[3],
                rows[2],
                None,
            )

    async def test_session_with_more_ended_calls_than_audit_records_is_found(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            recorded, other = await hold_session(store), await hold_session(store)
            await store.append(recorded, ToolEnded(call_id="c", outcome=Outcome.COMPLETED))
            body = f'{{"kind":"call","session_id":"{recorded.session_id}"}}'
            await store.write(lambda tx: tx.audit_append(AuditRow(seq=1, body=body, digest=b"d")))
            assert await store.read(lambda tx: tx.session_with_unrecorded_calls()) is None

            await store.append(other, ToolEnded(call_id="c", outcome=Outcome.COMPLETED))

            assert await store.read(lambda tx: tx.session_with_unrecorded_calls()) == other.session_id

    async def test_anchor_is_still_there_after_reopening(self, open_store: OpenStore) -> None:
        head = Head(3, b"d" * 32)
        async with open_store() as store:
            assert (store.anchor.exists(), store.anchor.read()) == (False, None)
            store.anchor.write(head)
        async with open_store() as store:
            assert (store.anchor.exists(), store.anchor.read()) == (True, head)

    async def test_time_comes_from_the_store(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            before = store.now()
            hold = await hold_session(store)
            appended = await store.append(hold, Titled(title="x"))
            now = await store.read(lambda tx: tx.now())
            [stored] = [stored async for stored in store.events(hold.session_id)]
            session = await store.session(hold.session_id)

            assert session is not None
            assert before <= session.created <= stored.at <= now <= session.read_at <= store.now()
            assert stored.at_microseconds == appended.at_microseconds

    async def test_write_that_was_rolled_back_can_run_again(self, open_store: OpenStore) -> None:
        """A store may run a function again. All effects of the function are on its `Tx`, so they happen once."""
        async with open_store() as store:
            runs = 0
            hold = await hold_session(store)

            def work(tx: Tx) -> tuple[int, int]:
                nonlocal runs
                runs += 1
                created = tx.create(NewSession(context=make_context(), title="mine"))
                new = tx.acquire(created.context.session_id)
                tx.append(hold, Titled(title="once"), "key")
                tx.audit_append(AuditRow(seq=1, body='{"session_id":"s"}', digest=b"d"))
                if runs == 1:
                    raise ConnectionError("a conflict with another process")
                return tx.append(new, Titled(title="mine")).seq, new.epoch

            with pytest.raises(ConnectionError):
                await store.write(work)
            seq, epoch = await store.write(work)

            assert (seq, epoch > hold.epoch) == (1, True)
            assert [stored.seq async for stored in store.events(hold.session_id)] == [1]
            assert len((await store.sessions(SessionQuery(visibility=ALL_SESSIONS))).items) == 2

    async def test_repeating_a_write_with_a_key_changes_nothing(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            new = NewSession(context=make_context())

            def work(tx: Tx) -> AppendResult:
                tx.create(new)
                appended = tx.append(hold, Titled(title="once"), "key")
                if appended.is_new:
                    tx.audit_append(AuditRow(seq=1, body='{"session_id":"s"}', digest=b"d"))
                tx.approve(make_approval("once"))
                return appended

            results = [await store.write(work, must_happen=True) for _ in range(3)]

            assert [result.is_new for result in results] == [True, False, False]
            assert {result.seq for result in results} == {1}
            assert await store.read(lambda tx: (len(tx.approvals()), len([*tx.audit_rows()]))) == (1, 1)
            assert store.postponed_writes == 0

    async def test_two_stores_on_the_same_data_see_each_others_writes(self, open_store: OpenStore) -> None:
        async with open_store() as first, open_store() as second:
            hold = await hold_session(first)
            for number in range(20):
                writer = first if number % 2 else second  # both write with the hold that `first` acquired
                assert (await writer.append(hold, Titled(title=str(number)))).seq == number + 1

            assert await first.read(lambda tx: tx.store_id()) == await second.read(lambda tx: tx.store_id())

    async def test_closed_store_refuses_reads_and_writes(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id
        await store.close()

        for use in (store.append(hold, Titled(title="late")), store.session(session_id)):
            with pytest.raises(HoldfastError) as caught:
                await use
            assert caught.value.code is codes.STORE_CLOSED

    async def test_hooks_run_after_every_commit(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            seen: list[int] = []
            hold = await hold_session(store)
            session_id = hold.session_id
            store.after_commit(lambda tx: seen.append(len(tx.events(session_id))))

            for number in range(3):
                await store.append(hold, Titled(title=str(number)))
            await store.write(lambda tx: tx.index_messages())

            assert [number for number in dict.fromkeys(seen) if number] == [1, 2, 3]
