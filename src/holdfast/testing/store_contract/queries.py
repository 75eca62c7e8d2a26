"""Tests of lists and searches: they return pages, and only visible sessions."""

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Replied, SessionClosed, Titled, TrustLowered
from holdfast.model.ids import SessionId, new_message_id
from holdfast.model.trust import Trust
from holdfast.store.query import ALL_SESSIONS, SearchQuery, SessionQuery, Visibility
from holdfast.store.types import Page, SessionChange, SessionState
from holdfast.testing.store_contract.factories import (
    OpenStore,
    add_turn,
    create_session,
    hold_session,
    search,
)


class QueryTests:
    """Part of `StoreContract`."""

    async def test_sessions_are_listed_latest_first_in_pages(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            ids = [(await create_session(store)).context.session_id for _ in range(7)]
            await store.append(await store.acquire(ids[2]), Titled(title="touched"))

            pages = [await store.sessions(SessionQuery(visibility=ALL_SESSIONS, limit=3))]
            while pages[-1].cursor:
                pages.append(
                    await store.sessions(
                        SessionQuery(visibility=ALL_SESSIONS, limit=3, cursor=pages[-1].cursor)
                    )
                )

            listed = [[session.context.session_id for session in page.items] for page in pages]
            assert listed == [[ids[2], ids[6], ids[5]], [ids[4], ids[3], ids[1]], [ids[0]]]

    async def test_sessions_can_be_filtered(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            parent = (
                await create_session(store, cwd="/a", tags=("red", "big"), source="acp")
            ).context.session_id
            child = (
                await create_session(store, cwd="/b", tags=("red",), source="team", parent_session_id=parent)
            ).context.session_id
            await store.append(await store.acquire(child), SessionClosed(reason="done"))

            async def listed(query: SessionQuery) -> set[SessionId]:
                return {session.context.session_id for session in (await store.sessions(query)).items}

            assert await listed(SessionQuery(visibility=ALL_SESSIONS, cwd="/a")) == {parent}
            assert await listed(SessionQuery(visibility=ALL_SESSIONS, tags=("red",))) == {parent, child}
            assert await listed(SessionQuery(visibility=ALL_SESSIONS, tags=("red", "big"))) == {parent}
            assert await listed(SessionQuery(visibility=ALL_SESSIONS, source="team")) == {child}
            assert await listed(SessionQuery(visibility=ALL_SESSIONS, parent=parent)) == {child}
            assert await listed(SessionQuery(visibility=ALL_SESSIONS, state=SessionState.OPEN)) == {parent}

    async def test_lists_and_searches_are_limited_to_a_workspace_and_a_trust_level(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            ids: dict[tuple[str, Trust], SessionId] = {}
            for workspace in ("garden", "cellar", ""):
                for trust in Trust:
                    hold = await hold_session(
                        store, workspace_id=workspace, trust_level=trust, title="needle"
                    )
                    ids[workspace, trust] = hold.session_id
                    await add_turn(store, hold, "needle in a message")

            async def seen(workspace: str, trust: Trust | None) -> set[SessionId]:
                visibility = Visibility(workspace_id=workspace, trust_level=trust)
                listed = await store.sessions(SessionQuery(visibility=visibility))
                sessions = {session.context.session_id for session in listed.items}
                assert {session_id for session_id, _ in await search(store, "needle", visibility)} == sessions
                return sessions

            assert await seen("garden", None) == {ids["garden", trust] for trust in Trust}
            assert await seen("garden", Trust.SANDBOXED) == {ids["garden", Trust.SANDBOXED]}
            assert await seen("", Trust.SANDBOXED) == {ids["", Trust.SANDBOXED]}

    async def test_session_becomes_visible_at_a_lower_trust_when_its_trust_is_lowered(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            hold = await hold_session(store, trust_level=Trust.DIRECT, title="needle")
            session_id = hold.session_id
            visibility = Visibility(trust_level=Trust.SANDBOXED)
            assert await search(store, "needle", visibility) == []

            await store.append(hold, TrustLowered(trust_level=Trust.SANDBOXED))

            assert await search(store, "needle", visibility) == [(session_id, "")]

    async def test_sessions_of_other_users_are_not_visible(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            mine = await create_session(store, user_id="ada", title="needle")
            await create_session(store, user_id="bob", title="needle")

            hits = await search(store, "needle", Visibility(user_id="ada"))

            assert hits == [(mine.context.session_id, "")]

    async def test_empty_user_id_lists_only_sessions_without_a_user(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            await create_session(store, user_id="ada")
            without_user = await create_session(store)

            page = await store.sessions(SessionQuery(visibility=Visibility(user_id="")))

            assert [found.context.session_id for found in page.items] == [without_user.context.session_id]

    async def test_streamed_message_is_found_by_all_of_its_words(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store, title="Über Rosen")
            session_id = hold.session_id
            message = new_message_id()
            for piece in ("The migr", "ation of the Arctic ter", "n, end-to-end"):
                await store.append(hold, Replied(message_id=message, text=piece))

            assert await search(store, "arctic MIGRATION", ALL_SESSIONS) == [(session_id, message)]
            assert await search(store, "end-to-end", ALL_SESSIONS) == [(session_id, message)]
            assert await search(store, "to-end-end", ALL_SESSIONS) == []
            assert await search(store, "uber", ALL_SESSIONS) == [(session_id, "")]
            assert await search(store, "arctic rosen", ALL_SESSIONS) == []

    async def test_text_appended_after_a_search_is_found_by_the_next_search(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            session_id = hold.session_id
            message = new_message_id()
            await store.append(hold, Replied(message_id=message, text="half a wo"))
            assert await search(store, "half", ALL_SESSIONS) == [(session_id, message)]

            await store.append(hold, Replied(message_id=message, text="rd"))

            assert await search(store, "half word", ALL_SESSIONS) == [(session_id, message)]
            assert await search(store, "wo", ALL_SESSIONS) == []

    async def test_new_title_replaces_the_old_title_in_the_search_index(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store, title="old")
            session_id = hold.session_id
            await store.append(hold, Titled(title="new"))
            assert (await search(store, "old", ALL_SESSIONS), await search(store, "new", ALL_SESSIONS)) == (
                [],
                [(session_id, "")],
            )

            await store.write(lambda tx: tx.change(hold, SessionChange(title="newest")))

            assert (
                await search(store, "new", ALL_SESSIONS),
                await search(store, "newest", ALL_SESSIONS),
            ) == (
                [],
                [(session_id, "")],
            )

    async def test_title_of_a_session_that_was_created_again_is_found_first(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            hold = await hold_session(store, title="rose")
            session_id = hold.session_id
            other = await create_session(store, title="rose")
            await store.write(lambda tx: tx.delete(hold))
            await create_session(store, title="rose", session_id=session_id)

            hits = await search(store, "rose", ALL_SESSIONS)

            assert hits == [(session_id, ""), (other.context.session_id, "")]

    async def test_search_returns_pages_with_snippets(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            hold = await hold_session(store)
            for number in range(5):
                await add_turn(store, hold, f"{'hay ' * 100}needle {number} {'hay ' * 100}")

            first = await store.search(SearchQuery(visibility=ALL_SESSIONS, words="needle", limit=3))
            second = await store.search(
                SearchQuery(visibility=ALL_SESSIONS, words="needle", limit=3, cursor=first.cursor)
            )

            seen = [hit.snippet for hit in first.items + second.items]
            assert [
                f"needle {number}" in text for number, text in zip((4, 3, 2, 1, 0), seen, strict=True)
            ] == [True] * 5
            assert max(map(len, seen)) < 200
            assert second.cursor is None

    @pytest.mark.parametrize("words", ["", "  ", "...", '"', "*", " ".join(["word"] * 33)])
    async def test_search_without_words_or_with_too_many_is_refused(
        self, open_store: OpenStore, words: str
    ) -> None:
        async with open_store() as store:
            with pytest.raises(HoldfastError) as caught:
                await store.search(SearchQuery(visibility=ALL_SESSIONS, words=words))

            assert caught.value.code is codes.BAD_ARGUMENT

    @pytest.mark.parametrize(
        "words", ['a" OR "b', "text: a", "NEAR(a b)", "a*", "(a", "a AND", "^a", "'; DROP TABLE"]
    )
    async def test_search_words_are_never_query_syntax(self, open_store: OpenStore, words: str) -> None:
        async with open_store() as store:
            await create_session(store, title="b")

            assert await search(store, words, ALL_SESSIONS) == []

    async def test_modified_cursor_or_cursor_of_another_query_is_refused(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            for _ in range(3):
                await create_session(store, title="needle")
            given = (await store.sessions(SessionQuery(visibility=ALL_SESSIONS, limit=1))).cursor
            assert given is not None
            changed = given[:-3] + ("AAA" if given[-3:] != "AAA" else "BBB")

            for query in (
                SessionQuery(visibility=ALL_SESSIONS, limit=1, cursor=changed),
                SessionQuery(visibility=ALL_SESSIONS, limit=1, cursor=""),
                SessionQuery(visibility=ALL_SESSIONS, limit=1, cursor="é" * 5000),
                SessionQuery(visibility=Visibility(workspace_id="other"), limit=1, cursor=given),
            ):
                with pytest.raises(HoldfastError) as caught:
                    await store.sessions(query)
                assert caught.value.code is codes.BAD_CURSOR
            with pytest.raises(HoldfastError) as caught:
                await store.search(
                    SearchQuery(visibility=ALL_SESSIONS, words="needle", limit=1, cursor=given)
                )
            assert caught.value.code is codes.BAD_CURSOR

    async def test_empty_store_lists_one_empty_page(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            assert await store.sessions(SessionQuery(visibility=ALL_SESSIONS)) == Page(items=())

    @pytest.mark.parametrize("limit", [0, 1001, -1])
    def test_limit_of_a_page_must_be_from_1_to_1000(self, limit: int) -> None:
        with pytest.raises(HoldfastError):
            SessionQuery(visibility=ALL_SESSIONS, limit=limit)
