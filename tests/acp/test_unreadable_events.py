"""An editor's view of a session survives a short failure of the store; a long one is an error that says what to do."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.host.host import Host
from holdfast.session import subscription
from holdfast.store.sqlite import SqliteStore
from holdfast.wire.messages import PeerError
from tests.acp.zed import Zed, connected
from tests.connect.conftest import HostFactory, make_host
from tests.store.disks import FailingReads

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-02")]


@asynccontextmanager
async def stored_session(make_host: HostFactory, folder: Path) -> AsyncIterator[tuple[SqliteStore, Zed, str]]:
    """An editor, and a session that it has closed."""
    async with (
        SqliteStore(folder / "holdfast.db") as store,
        Host(settings=make_host({}).settings, store=store) as host,
        connected(host) as zed,
    ):
        session = (await zed.request("session/new", cwd=str(folder), mcpServers=[]))["sessionId"]
        await zed.prompt(session, "/help")
        await zed.request("session/close", sessionId=session)
        zed.received.clear()
        yield store, zed, session


def nothing_in_memory(feed: subscription.EventFeed, after: int) -> tuple[()]:
    """Makes subscribers read all events from the store."""
    return ()


async def test_a_short_failure_is_not_noticed(make_host: HostFactory, tmp_path: Path):
    async with stored_session(make_host, tmp_path) as (store, zed, session):
        reads = FailingReads(store, code=sqlite3.SQLITE_BUSY, times=2)
        await zed.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])

        assert (reads.times, zed.shown("user_message_chunk")) == (0, ["/help"])
        assert await zed.prompt(session, "/help") == "end_turn"


async def test_after_a_long_failure_the_session_can_be_loaded_again(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(subscription, "RETRY_SECONDS", (0.0, 0.0))
    async with stored_session(make_host, tmp_path) as (store, zed, session):
        reads = FailingReads(store, code=sqlite3.SQLITE_IOERR, times=1000)
        with pytest.raises(PeerError) as failed:
            await zed.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        reads.times = 0
        await zed.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])

        assert str(failed.value).startswith("The events of the session could not be read. The disk failed")
        assert b"Load the session again" in bytes(failed.value.data)
        assert zed.shown("user_message_chunk") == ["/help"]


async def test_prompt_whose_events_cannot_be_read_fails_and_says_so(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(subscription, "RETRY_SECONDS", (0.0, 0.0))
    async with stored_session(make_host, tmp_path) as (store, zed, session):
        await zed.request("session/resume", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        monkeypatch.setattr(subscription.EventFeed, "recent", nothing_in_memory)
        reads = FailingReads(store, code=sqlite3.SQLITE_IOERR, times=1000)
        with pytest.raises(PeerError) as failed:
            await zed.prompt(session, "/help")
        with pytest.raises(PeerError) as not_open:
            await zed.prompt(session, "/help")
        reads.times = 0
        await zed.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])

        assert str(failed.value).startswith("The events of the session could not be read.")
        assert str(not_open.value).startswith(
            f"The session {session} is not open on this connection: The events"
        )
        assert zed.shown("user_message_chunk") == ["/help", "/help"]
