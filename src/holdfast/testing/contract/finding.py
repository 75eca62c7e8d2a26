"""Lists and searches: page by page, and only what the caller may see."""

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Replied, SessionClosed, Titled, TrustLowered
from holdfast.model.ids import SessionId, new_message_id
from holdfast.model.trust import Trust
from holdfast.store.query import OPERATOR, Reach, SearchQuery, SessionQuery
from holdfast.store.rows import Page, SessionChange, SessionState
from holdfast.testing.contract.given import Opener, context, create, found, say


class Finding:
    """Tests that `StoreContract` inherits."""

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

    async def test_many_open_pages_never_change_the_question(self, opener: Opener) -> None:
        async with opener() as store:
            assert await store.sessions(SessionQuery(reach=OPERATOR)) == Page(items=())
            for limit in (0, 1001, -1):
                with pytest.raises(HoldfastError):
                    SessionQuery(reach=OPERATOR, limit=limit)
