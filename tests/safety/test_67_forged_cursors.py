"""Attack 67: a client edits a cursor, or uses one that another client got, to read what it may not list."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.gateway import paging
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Mode
from holdfast.model.tool_pattern import parse_tool_pattern
from holdfast.store import query
from holdfast.store.query import SessionQuery, Visibility
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.store_contract.factories import create_session
from tests.gateway.running import Client, read_answer, running_gateway
from tests.journeys.conftest import cwd, home
from tests.journeys.editor import RpcError, editor

__all__ = ["cwd", "home"]
pytestmark = pytest.mark.anyio
PAGE = 50


async def store_sessions(path: Path) -> tuple[set[str], str, str]:
    """Store more sessions of ann and of bob than a page has. Return the ids of ann's, and a cursor of each."""
    anns: set[str] = set()
    async with SqliteStore(path) as store:
        for _ in range(PAGE + 1):
            anns.add((await create_session(store, user_id="ann")).context.session_id)
            await create_session(store, user_id="bob")
        pages = [
            await store.sessions(SessionQuery(visibility=Visibility(user_id=user))) for user in ("ann", "bob")
        ]
    cursors = [page.cursor or "" for page in pages]
    return anns, cursors[0], cursors[1]


def forge(cursor: str, position: tuple[int, int]) -> list[str]:
    """The cursor with another position; with another end; with characters that a decoder skips; and in another alphabet."""
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    mac = raw[: query._MAC_BYTES]
    moved = base64.urlsafe_b64encode(mac + msgspec.msgpack.encode(position)).decode().rstrip("=")
    return [moved, cursor[:-1], cursor + "\n", f"{cursor}==", f"{cursor[:4]}!{cursor[4:]}"]


@pytest.mark.slow
async def test_an_editor_lists_no_other_users_sessions_by_a_cursor(home: Path):
    (home / "data").mkdir(mode=0o700)
    anns, anns_cursor, bobs_cursor = await store_sessions(home / "data" / "holdfast.db")
    refused: list[str] = []
    async with editor(home, "--user", "bob") as zed:
        forged = [anns_cursor, *forge(anns_cursor, (2**60, 2**60)), *forge(bobs_cursor, (0, 0))]
        for cursor in forged:
            with pytest.raises(RpcError) as error:
                await zed.request("session/list", {"cursor": cursor})
            refused.append(error.value.message)
        first = await zed.request("session/list", {})
        rest = await zed.request("session/list", {"cursor": first["nextCursor"]})

    assert [message.partition("The cursor")[1] for message in refused] == ["The cursor"] * len(forged)
    assert anns.isdisjoint(found["sessionId"] for page in (first, rest) for found in page["sessions"])
    assert (first["nextCursor"], len(rest["sessions"])) == (bobs_cursor, 1)


def sign_alike(*_: object) -> bytes:
    return b"\0" * query._MAC_BYTES


@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_a_cursor_of_another_user_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(query, "_mac", sign_alike)
    _, anns_cursor, _ = await store_sessions(tmp_path / "holdfast.db")

    async with SqliteStore(tmp_path / "holdfast.db") as store:
        try:
            page = await store.sessions(
                SessionQuery(visibility=Visibility(user_id="bob"), cursor=anns_cursor)
            )
        except HoldfastError:
            page = None

    assert (page is None) is is_protected


def believe(cursor: str, digest: str, length: int) -> int:
    return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=paging._Cursor).offset


@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_a_gateways_cursor_counts_only_for_the_list_that_it_came_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    monkeypatch.setattr(paging, "PAGE_SIZE", 1)
    if not is_protected:
        monkeypatch.setattr(paging, "_read_offset", believe)
    patterns = tuple(map(parse_tool_pattern, ("counter.add", "counter.who")))
    async with running_gateway(tmp_path) as running:
        wide, narrow = running.token(mode=Mode.AUTO), running.token("narrow", tools=patterns)
        async with Client(running.url, wide) as client:
            cursor = (await list_tools(client))["result"]["nextCursor"]
        async with Client(running.url, narrow) as client:
            own = (await list_tools(client))["result"]["nextCursor"]
            answers = [await list_tools(client, each) for each in (cursor, *edit(own))]
            honest = await list_tools(client, own)

    assert [answer.get("error", {}).get("code") for answer in answers[: 1 + is_protected * 3]] == (
        [-32602] * 4 if is_protected else [None]
    )
    offered = {
        tool["name"] for answer in (*answers, honest) for tool in answer.get("result", {}).get("tools", ())
    }
    assert offered <= {"counter__add", "counter__who", "add", "who"}


def edit(cursor: str) -> list[str]:
    """The cursor behind the end of the list, before its beginning, and with another digest."""
    offset, digest = msgspec.json.decode(base64.urlsafe_b64decode(cursor))
    changed = [[10**9, digest], [-1, digest], [offset, digest[::-1]]]
    return [base64.urlsafe_b64encode(msgspec.json.encode(each)).decode() for each in changed]


async def list_tools(client: Client, cursor: str | None = None) -> Any:
    return read_answer(await client.post("tools/list", {} if cursor is None else {"cursor": cursor}))
