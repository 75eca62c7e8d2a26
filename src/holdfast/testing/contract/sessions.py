"""What a store keeps about a session, beside its log."""

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
from holdfast.store.query import OPERATOR
from holdfast.store.rows import AuditRow, NewSession, SessionChange, SessionState, StoredSession
from holdfast.testing.contract.given import Opener, context, create, found, prompted, say


class Sessions:
    """Tests that `StoreContract` inherits."""

    async def test_a_session_is_kept_as_it_was_given(self, opener: Opener) -> None:
        async with opener() as store:
            new = NewSession(
                context=context(
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

    async def test_creating_a_session_again_changes_nothing(self, opener: Opener) -> None:
        async with opener() as store:
            stored = await create(store)
            await store.append(stored.context.session_id, Titled(title="Mine"))

            again = await store.create(NewSession(context=stored.context))

            assert (again.title, again.last_seq) == ("Mine", 1)

    async def test_a_session_id_cannot_be_taken_by_another_workspace(self, opener: Opener) -> None:
        async with opener() as store:
            stored = await create(store, workspace_id="garden")

            with pytest.raises(HoldfastError) as refused:
                await store.create(
                    NewSession(context=context(session_id=stored.context.session_id, workspace_id="cellar"))
                )

            assert refused.value.code is codes.SESSION_EXISTS

    async def test_an_unknown_session_is_none_to_readers_and_an_error_to_writers(
        self, opener: Opener
    ) -> None:
        async with opener() as store:
            nobody = new_session_id()

            assert await store.session(nobody) is None
            assert [event async for event in store.events(nobody)] == []
            for write in (
                store.append(nobody, Titled(title="x")),
                store.hold(nobody),
                store.write(lambda tx: tx.change(nobody, SessionChange(title="x"))),
            ):
                with pytest.raises(HoldfastError) as refused:
                    await write
                assert refused.value.code is codes.UNKNOWN_SESSION

    async def test_events_change_the_session_they_belong_to(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store, trust_level=Trust.DIRECT)).context.session_id
            turn = new_turn_id()
            for event in (
                SessionOpened(cwd="/new", roots=("/new",), trust_level=Trust.DIRECT),
                Titled(title="Named"),
                prompted("hello", turn),
                TrustLowered(trust_level=Trust.SANDBOXED),
                SessionClosed(reason="done"),
            ):
                await store.append(session_id, event)

            stored = await store.session(session_id)

            assert stored is not None
            assert (stored.title, stored.state, stored.open_turn, stored.last_seq) == (
                "Named",
                SessionState.CLOSED,
                turn,
                5,
            )
            assert stored.context == context(
                session_id=session_id, trust_level=Trust.SANDBOXED, cwd="/new", roots=("/new",)
            )
            assert stored.updated > stored.created

    async def test_the_end_of_a_session_does_not_make_it_the_latest(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            await store.append(session_id, prompted("hello", turn := new_turn_id()))
            before = await store.session(session_id)
            await store.append(session_id, TurnEnded(turn_id=turn, reason=StopReason.INTERRUPTED))
            await store.append(session_id, SessionClosed(reason="its process ended"))
            after = await store.session(session_id)

            assert before is not None
            assert after is not None
            assert (after.updated, after.state, after.open_turn) == (before.updated, SessionState.CLOSED, "")

    async def test_trust_is_never_raised_by_an_event(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store, trust_level=Trust.SANDBOXED)).context.session_id

            await store.append(session_id, SessionOpened(cwd="/", roots=(), trust_level=Trust.DIRECT))
            await store.append(session_id, TrustLowered(trust_level=Trust.DIRECT))

            stored = await store.session(session_id)
            assert stored is not None
            assert stored.context.trust_level is Trust.SANDBOXED

    async def test_a_change_touches_only_what_it_names(self, opener: Opener) -> None:
        async with opener() as store:
            session = await create(store, cwd="/old")
            session_id = session.context.session_id

            await store.write(
                lambda tx: tx.change(session_id, SessionChange(tags=("b", "a"), settings={"k": 1}))
            )
            changed = await store.write(
                lambda tx: tx.change(session_id, SessionChange(cwd="/new", roots=("/r",)))
            )

            assert (changed.title, changed.tags, changed.settings) == (session.title, ("a", "b"), {"k": 1})
            assert (changed.context.cwd, changed.context.roots) == ("/new", ("/r",))

    async def test_a_deleted_session_is_gone_and_the_audit_of_it_stays(self, opener: Opener) -> None:
        async with opener() as store:
            kept, gone = await create(store, title="roses"), await create(store, title="roses")
            session_id = gone.context.session_id
            await say(store, session_id, "roses again")
            row = AuditRow(seq=1, body=f'{{"session_id":"{session_id}"}}', digest=b"d")
            await store.write(lambda tx: tx.audit_append(row))

            told = [await store.write(lambda tx: tx.delete(session_id)) for _ in range(2)]

            assert told == [True, False]
            assert await store.session(session_id) is None
            assert [event async for event in store.events(session_id)] == []
            assert await found(store, "roses", OPERATOR) == [(kept.context.session_id, "")]
            assert await store.read(lambda reads: tuple(reads.audit_rows(session_id=session_id))) == (row,)

    async def test_the_last_resolution_is_kept_with_its_refusals(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            assert await store.read(lambda reads: reads.resolution(session_id)) is None
            refusal = Refusal(server="shell", stage=Stage.ADMIT, reason="Not for sandboxed sessions.")
            last = ServersResolved(servers=("files",), refusals=(refusal,))
            for event in (ServersResolved(servers=("old",), refusals=()), last, Titled(title="later")):
                await store.append(session_id, event)

            assert await store.read(lambda reads: reads.resolution(session_id)) == last
