"""What every store must do, as tests to inherit: give `opener`, and pytest runs them on your store."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Outcome,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    SessionOpened,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    TrustLowered,
    TurnEnded,
)
from holdfast.model.ids import SessionId, new_message_id, new_session_id, new_turn_id
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.trust import Trust
from holdfast.store import clock
from holdfast.store.interrupted import end_interrupted
from holdfast.store.lease import is_interrupted
from holdfast.store.query import OPERATOR, Reach, SearchQuery, SessionQuery
from holdfast.store.rows import (
    Appended,
    Approval,
    AuditRow,
    NewSession,
    Page,
    SessionChange,
    SessionState,
    StoredSession,
)
from holdfast.store.store import Store, Tx

Opener = Callable[[], AbstractAsyncContextManager[Store]]


class StoreContract:
    """Inherit from this in a class whose name begins with `Test`, and override `opener`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """The tests run on asyncio."""
        return "asyncio"

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        """Opens a store; each call opens one more on the same data, as another process would."""
        raise NotImplementedError("Override the fixture `opener` to give the store under test.")

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

    async def test_trust_is_never_raised_by_an_event(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store, trust_level=Trust.SANDBOXED)).context.session_id

            await store.append(session_id, SessionOpened(cwd="/", roots=(), trust_level=Trust.DIRECT))
            await store.append(session_id, TrustLowered(trust_level=Trust.DIRECT))

            stored = await store.session(session_id)
            assert stored is not None
            assert stored.context.trust_level is Trust.SANDBOXED

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

    async def test_sessions_are_listed_the_latest_first_page_by_page(self, opener: Opener) -> None:
        async with opener() as store:
            ids = [(await create(store)).context.session_id for _ in range(7)]
            await store.append(ids[2], Titled(title="touched"))

            pages = [await store.sessions(SessionQuery(reach=OPERATOR, limit=3))]
            while pages[-1].cursor:
                pages.append(
                    await store.sessions(SessionQuery(reach=OPERATOR, limit=3, cursor=pages[-1].cursor))
                )

            listed = [[session.context.session_id for session in page.items] for page in pages]
            assert listed == [[ids[2], ids[6], ids[5]], [ids[4], ids[3], ids[1]], [ids[0]]]

    async def test_sessions_are_listed_by_what_is_asked_for(self, opener: Opener) -> None:
        async with opener() as store:
            parent = (await create(store, cwd="/a", tags=("red", "big"), source="acp")).context.session_id
            child = (
                await create(store, cwd="/b", tags=("red",), source="team", parent_session_id=parent)
            ).context.session_id
            await store.append(child, SessionClosed(reason="done"))

            async def listed(query: SessionQuery) -> set[SessionId]:
                return {session.context.session_id for session in (await store.sessions(query)).items}

            assert await listed(SessionQuery(reach=OPERATOR, cwd="/a")) == {parent}
            assert await listed(SessionQuery(reach=OPERATOR, tags=("red",))) == {parent, child}
            assert await listed(SessionQuery(reach=OPERATOR, tags=("red", "big"))) == {parent}
            assert await listed(SessionQuery(reach=OPERATOR, source="team")) == {child}
            assert await listed(SessionQuery(reach=OPERATOR, parent=parent)) == {child}
            assert await listed(SessionQuery(reach=OPERATOR, state=SessionState.OPEN)) == {parent}

    async def test_a_caller_sees_its_own_workspace_and_a_sandboxed_one_only_sandboxed(
        self, opener: Opener
    ) -> None:
        async with opener() as store:
            ids: dict[tuple[str, Trust], SessionId] = {}
            for workspace in ("garden", "cellar", ""):
                for trust in Trust:
                    session = await create(store, workspace_id=workspace, trust_level=trust, title="needle")
                    ids[workspace, trust] = session.context.session_id
                    await say(store, session.context.session_id, "needle in a message")

            async def seen(workspace: str, trust: Trust) -> set[SessionId]:
                reach = Reach.of(context(workspace_id=workspace, trust_level=trust))
                listed = await store.sessions(SessionQuery(reach=reach))
                sessions = {session.context.session_id for session in listed.items}
                assert {session_id for session_id, _ in await found(store, "needle", reach)} == sessions
                return sessions

            assert await seen("garden", Trust.DIRECT) == {ids["garden", trust] for trust in Trust}
            assert await seen("garden", Trust.SANDBOXED) == {ids["garden", Trust.SANDBOXED]}
            assert await seen("", Trust.SANDBOXED) == {ids["", Trust.SANDBOXED]}

    async def test_a_session_whose_trust_fell_is_seen_accordingly(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store, trust_level=Trust.DIRECT, title="needle")).context.session_id
            reach = Reach(trust_level=Trust.SANDBOXED)
            assert await found(store, "needle", reach) == []

            await store.append(session_id, TrustLowered(trust_level=Trust.SANDBOXED))

            assert await found(store, "needle", reach) == [(session_id, "")]

    async def test_another_users_sessions_are_out_of_reach(self, opener: Opener) -> None:
        async with opener() as store:
            mine = await create(store, user_id="ada", title="needle")
            await create(store, user_id="bob", title="needle")

            hits = await found(store, "needle", Reach.of(mine.context))

            assert hits == [(mine.context.session_id, "")]

    async def test_sessions_that_are_no_users_can_be_asked_for_alone(self, opener: Opener) -> None:
        async with opener() as store:
            await create(store, user_id="ada")
            nobodys = await create(store)

            page = await store.sessions(SessionQuery(reach=Reach(user_id="")))

            assert [found.context.session_id for found in page.items] == [nobodys.context.session_id]

    async def test_many_events_of_a_turn_can_be_added_at_once(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            events = [Replied(message_id="m", text=f"rose{number} ") for number in range(250)]

            added = await store.write(lambda tx: tx.append_many(session_id, events))
            await store.append(session_id, TurnEnded(turn_id="t", reason=StopReason.END_TURN))

            assert added == [Appended(seq, new=True) for seq in range(1, 251)]
            stored = [stored async for stored in store.events(session_id)]
            assert [event.event for event in stored[:-1]] == events
            assert [event.seq for event in stored] == list(range(1, 252))
            hits = await store.search(SearchQuery(reach=OPERATOR, words="rose249"))
            assert len(hits.items) == 1

    async def test_a_message_is_found_by_all_of_its_words_even_when_it_came_in_pieces(
        self, opener: Opener
    ) -> None:
        async with opener() as store:
            session_id = (await create(store, title="Über Rosen")).context.session_id
            message = new_message_id()
            for piece in ("The migr", "ation of the Arctic ter", "n, end-to-end"):
                await store.append(session_id, Replied(message_id=message, text=piece))

            assert await found(store, "arctic MIGRATION", OPERATOR) == [(session_id, message)]
            assert await found(store, "end-to-end", OPERATOR) == [(session_id, message)]
            assert await found(store, "to-end-end", OPERATOR) == []
            assert await found(store, "uber", OPERATOR) == [(session_id, "")]
            assert await found(store, "arctic rosen", OPERATOR) == []

    async def test_what_is_said_after_a_search_is_found_by_the_next(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            message = new_message_id()
            await store.append(session_id, Replied(message_id=message, text="half a wo"))
            assert await found(store, "half", OPERATOR) == [(session_id, message)]

            await store.append(session_id, Replied(message_id=message, text="rd"))

            assert await found(store, "half word", OPERATOR) == [(session_id, message)]
            assert await found(store, "wo", OPERATOR) == []

    async def test_a_new_title_replaces_the_old_one_in_the_search(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store, title="old")).context.session_id
            await store.append(session_id, Titled(title="new"))
            assert (await found(store, "old", OPERATOR), await found(store, "new", OPERATOR)) == (
                [],
                [(session_id, "")],
            )

            await store.write(lambda tx: tx.change(session_id, SessionChange(title="newest")))

            assert (await found(store, "new", OPERATOR), await found(store, "newest", OPERATOR)) == (
                [],
                [(session_id, "")],
            )

    async def test_hits_come_page_by_page_with_a_glimpse_of_the_text(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            for number in range(5):
                await say(store, session_id, f"{'hay ' * 100}needle {number} {'hay ' * 100}")

            first = await store.search(SearchQuery(reach=OPERATOR, words="needle", limit=3))
            second = await store.search(
                SearchQuery(reach=OPERATOR, words="needle", limit=3, cursor=first.cursor)
            )

            seen = [hit.snippet for hit in first.items + second.items]
            assert [
                f"needle {number}" in text for number, text in zip((4, 3, 2, 1, 0), seen, strict=True)
            ] == [True] * 5
            assert max(map(len, seen)) < 200
            assert second.cursor is None

    @pytest.mark.parametrize("words", ["", "  ", "...", '"', "*", " ".join(["word"] * 33)])
    async def test_a_search_without_words_or_with_too_many_is_refused(
        self, opener: Opener, words: str
    ) -> None:
        async with opener() as store:
            with pytest.raises(HoldfastError) as refused:
                await store.search(SearchQuery(reach=OPERATOR, words=words))

            assert refused.value.code is codes.BAD_ARGUMENT

    @pytest.mark.parametrize(
        "words", ['a" OR "b', "text: a", "NEAR(a b)", "a*", "(a", "a AND", "^a", "'; DROP TABLE"]
    )
    async def test_the_words_of_a_search_are_never_a_query_language(self, opener: Opener, words: str) -> None:
        async with opener() as store:
            await create(store, title="b")

            assert await found(store, words, OPERATOR) == []

    async def test_a_cursor_that_was_changed_or_is_of_another_query_is_refused(self, opener: Opener) -> None:
        async with opener() as store:
            for _ in range(3):
                await create(store, title="needle")
            given = (await store.sessions(SessionQuery(reach=OPERATOR, limit=1))).cursor
            assert given is not None
            changed = given[:-3] + ("AAA" if given[-3:] != "AAA" else "BBB")

            for query in (
                SessionQuery(reach=OPERATOR, limit=1, cursor=changed),
                SessionQuery(reach=OPERATOR, limit=1, cursor=""),
                SessionQuery(reach=OPERATOR, limit=1, cursor="é" * 5000),
                SessionQuery(reach=Reach(workspace_id="other"), limit=1, cursor=given),
            ):
                with pytest.raises(HoldfastError) as refused:
                    await store.sessions(query)
                assert refused.value.code is codes.BAD_CURSOR
            with pytest.raises(HoldfastError) as refused:
                await store.search(SearchQuery(reach=OPERATOR, words="needle", limit=1, cursor=given))
            assert refused.value.code is codes.BAD_CURSOR

    async def test_the_last_resolution_is_kept_with_its_refusals(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id
            assert await store.read(lambda reads: reads.resolution(session_id)) is None
            refusal = Refusal(server="shell", stage=Stage.ADMIT, reason="Not for sandboxed sessions.")
            last = ServersResolved(servers=("files",), refusals=(refusal,))
            for event in (ServersResolved(servers=("old",), refusals=()), last, Titled(title="later")):
                await store.append(session_id, event)

            assert await store.read(lambda reads: reads.resolution(session_id)) == last

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
            session_id = (await create(second)).context.session_id
            async with opener() as first:
                await first.hold(session_id)

            assert (await second.hold(session_id)).session_id == session_id

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

    async def test_what_cannot_be_written_down_is_refused(self, opener: Opener) -> None:
        async with opener() as store:
            session_id = (await create(store)).context.session_id

            with pytest.raises(HoldfastError) as refused:
                await store.append(session_id, Titled(title="half a character: \ud800"))

            assert refused.value.code is codes.UNSTORABLE

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

    async def test_many_open_pages_never_change_the_question(self, opener: Opener) -> None:
        async with opener() as store:
            assert await store.sessions(SessionQuery(reach=OPERATOR)) == Page(items=())
            for limit in (0, 1001, -1):
                with pytest.raises(HoldfastError):
                    SessionQuery(reach=OPERATOR, limit=limit)


def context(**fields: Any) -> SessionContext:
    """A sandboxed session's context, but for the fields that matter to a test."""
    return replace(
        SessionContext(session_id=new_session_id(), trust_level=Trust.SANDBOXED, cwd="/"), **fields
    )


async def create(
    store: Store, *, title: str = "", tags: tuple[str, ...] = (), source: str = "", **fields: Any
) -> StoredSession:
    """A new session in the store."""
    return await store.create(NewSession(context=context(**fields), title=title, tags=tags, source=source))


async def say(store: Store, session_id: SessionId, text: str) -> None:
    """A whole turn in which the user says this."""
    turn = new_turn_id()
    await store.append(session_id, prompted(text, turn))
    await store.append(session_id, TurnEnded(turn_id=turn, reason=StopReason.END_TURN))


def prompted(text: str, turn_id: str) -> Prompted:
    """The user says something."""
    return Prompted(turn_id=turn_id, message_id=new_message_id(), blocks=({"type": "text", "text": text},))


def called(call_id: str) -> ToolCalled:
    """The agent asks for a tool."""
    return ToolCalled(call_id=call_id, server="files", tool="read", arguments={"path": "a"})


async def found(store: Store, words: str, reach: Reach) -> list[tuple[SessionId, str]]:
    """In which messages of which sessions the words are found."""
    page = await store.search(SearchQuery(reach=reach, words=words, limit=100))
    return [(hit.session.context.session_id, hit.message_id) for hit in page.items]


def approval(what: str) -> Approval:
    """Somebody's approval of a thing."""
    return Approval(what=what, content_hash="c0ffee", by="ada", at=datetime(2026, 11, 1, 12, 30, tzinfo=UTC))
