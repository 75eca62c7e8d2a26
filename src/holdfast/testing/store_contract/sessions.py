"""Tests of sessions: how they are created, changed by events, and deleted."""

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    ServersResolved,
    SessionClosed,
    SessionOpened,
    StopReason,
    Titled,
    TrustLowered,
    TurnEnded,
)
from holdfast.model.ids import new_session_id, new_turn_id
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.trust import Trust
from holdfast.store.query import ALL_SESSIONS
from holdfast.store.types import AuditRow, Hold, NewSession, SessionChange, SessionState, StoredSession
from holdfast.testing.store_contract.factories import (
    OpenStore,
    add_turn,
    create_session,
    hold_session,
    make_context,
    make_prompt,
    search,
)


class SessionTests:
    """Part of `StoreContract`."""

    async def test_session_is_stored_with_its_tags_sorted_and_without_duplicates(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            new = NewSession(
                context=make_context(
                    workspace_id="garden", user_id="ada", cwd="/home/ada", roots=("/home/ada", "/srv")
                ),
                title="Roses",
                tags=("b", "a", "b"),
                source="acp",
                settings={"mode": "ask", "depth": [1, {"deep": None}]},
            )

            stored = await store.create(new)

            assert stored == StoredSession(
                context=new.context,
                title="Roses",
                tags=("a", "b"),
                source="acp",
                settings=new.settings,
                state=SessionState.OPEN,
                created=stored.created,
                updated=stored.created,
                last_seq=0,
                open_turn="",
            )
            assert await store.session(new.context.session_id) == stored

    async def test_creating_a_session_again_changes_nothing(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            stored = await create_session(store)
            hold = await store.acquire(stored.context.session_id)
            await store.append(hold, Titled(title="Mine"))

            again = await store.create(NewSession(context=stored.context))

            assert (again.title, again.last_seq) == ("Mine", 1)

    async def test_another_workspace_cannot_reuse_a_session_id(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            stored = await create_session(store, workspace_id="garden")

            with pytest.raises(HoldfastError) as caught:
                await store.create(
                    NewSession(
                        context=make_context(session_id=stored.context.session_id, workspace_id="cellar")
                    )
                )

            assert caught.value.code is codes.SESSION_EXISTS

    async def test_reading_an_unknown_session_returns_none_and_writing_raises(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            unknown = new_session_id()
            hold = Hold(unknown, 1)

            assert await store.session(unknown) is None
            assert [event async for event in store.events(unknown)] == []
            for write in (
                store.acquire(unknown),
                store.append(hold, Titled(title="x")),
                store.write(lambda tx: tx.change(hold, SessionChange(title="x"))),
                store.write(lambda tx: tx.delete(hold)),
            ):
                with pytest.raises(HoldfastError) as caught:
                    await write
                assert caught.value.code is codes.UNKNOWN_SESSION

    async def test_events_update_their_session(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store, trust_level=Trust.DIRECT)
            session_id = hold.session_id
            turn = new_turn_id()
            for event in (
                SessionOpened(cwd="/new", roots=("/new",), trust_level=Trust.DIRECT),
                Titled(title="Named"),
                make_prompt("hello", turn),
                TrustLowered(trust_level=Trust.SANDBOXED),
                SessionClosed(reason="done"),
            ):
                await store.append(hold, event)

            stored = await store.session(session_id)

            assert stored is not None
            assert (stored.title, stored.state, stored.open_turn, stored.last_seq) == (
                "Named",
                SessionState.CLOSED,
                turn,
                5,
            )
            assert stored.context == make_context(
                session_id=session_id, trust_level=Trust.SANDBOXED, cwd="/new", roots=("/new",)
            )
            assert stored.updated > stored.created

    async def test_interrupting_and_closing_a_session_does_not_change_its_updated_time(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id
            await store.append(hold, make_prompt("hello", turn := new_turn_id()))
            before = await store.session(session_id)
            await store.append(hold, TurnEnded(turn_id=turn, reason=StopReason.INTERRUPTED))
            await store.append(hold, SessionClosed(reason="its process ended"))
            after = await store.session(session_id)

            assert before is not None
            assert after is not None
            assert (after.updated, after.state, after.open_turn) == (before.updated, SessionState.CLOSED, "")

    async def test_events_never_raise_trust(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store, trust_level=Trust.SANDBOXED)
            session_id = hold.session_id

            await store.append(hold, SessionOpened(cwd="/", roots=(), trust_level=Trust.DIRECT))
            await store.append(hold, TrustLowered(trust_level=Trust.DIRECT))

            stored = await store.session(session_id)
            assert stored is not None
            assert stored.context.trust_level is Trust.SANDBOXED

    async def test_change_replaces_only_the_given_fields(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            session = await create_session(store, cwd="/old")
            hold = await store.acquire(session.context.session_id)

            await store.write(lambda tx: tx.change(hold, SessionChange(tags=("b", "a"), settings={"k": 1})))
            changed = await store.write(lambda tx: tx.change(hold, SessionChange(cwd="/new", roots=("/r",))))

            assert (changed.title, changed.tags, changed.settings) == (session.title, ("a", "b"), {"k": 1})
            assert (changed.context.cwd, changed.context.roots) == ("/new", ("/r",))

    async def test_deleting_a_session_keeps_its_audit_records(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            kept, hold = await create_session(store, title="roses"), await hold_session(store, title="roses")
            session_id = hold.session_id
            await add_turn(store, hold, "roses again")
            row = AuditRow(seq=1, body=f'{{"session_id":"{session_id}"}}', digest=b"d")
            await store.write(lambda tx: tx.audit_append(row))

            await store.write(lambda tx: tx.delete(hold))

            assert await store.session(session_id) is None
            assert [event async for event in store.events(session_id)] == []
            assert await search(store, "roses", ALL_SESSIONS) == [(kept.context.session_id, "")]
            assert await store.read(lambda tx: tuple(tx.audit_rows(session_id=session_id))) == (row,)

    async def test_latest_resolution_is_returned_with_its_refusals(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id
            assert await store.read(lambda tx: tx.resolution(session_id)) is None
            refusal = Refusal(server="shell", stage=Stage.ADMIT, reason="Not for sandboxed sessions.")
            last = ServersResolved(servers=("files",), refusals=(refusal,))
            for event in (ServersResolved(servers=("old",), refusals=()), last, Titled(title="later")):
                await store.append(hold, event)

            assert await store.read(lambda tx: tx.resolution(session_id)) == last
