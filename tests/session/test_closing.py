"""Closing a session ends its calls first: nothing of it goes on, and nothing of it is written afterwards."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from holdfast.audit.record import AuditKind
from holdfast.connect.call import Answer
from holdfast.connect.catalog import Offer
from holdfast.host import Opening
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.event import Replied, SessionClosed, ToolEnded
from holdfast.session.listing import Listing
from tests.connect.conftest import HostFactory, counter, make_host
from tests.session.test_audited import notes
from tests.session.test_owed import failing
from tests.store.sessions import refused

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize("what", ["a call over a shared link", "a call that waits for permission"])
async def test_what_would_outlive_its_session_ends_with_it_and_once(
    make_host: HostFactory, tmp_path: Path, what: str
) -> None:
    servers = {"c": counter("--shared", lifetime="host")}
    async with make_host(servers) as host:
        session = await host.open(Opening(cwd=tmp_path))
        await session.settle()
        waits = asyncio.Event()

        async def permit(asked: ToolCall, offer: Offer) -> Answer | None:
            if what != "a call over a shared link":
                waits.set()
                await asyncio.sleep(600)
            return None

        asked = ToolCall(call_id="call_1", server="", tool="c.linger", arguments=b"{}")
        running = asyncio.create_task(session.perform(asked, permit=permit, progress=lambda _: waits.set()))
        await waits.wait()
        await host.close_session(session)
        answer = await running
        again = await host.reopen(session.context.session_id, Opening(cwd=tmp_path))
        await host.close_session(again)
        kept = await notes(host, AuditKind.CALL)
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    (ended,) = [place for place, event in enumerate(events) if isinstance(event, ToolEnded)]
    assert (answer.outcome, answer.code) == ("cancelled", "SCOPE_CLOSED")
    assert isinstance(events[ended + 1], SessionClosed)
    assert [(note.outcome, note.reason) for note in kept] == [("cancelled", "SCOPE_CLOSED")]


async def test_nothing_is_written_to_a_session_that_was_closed(
    make_host: HostFactory, tmp_path: Path
) -> None:
    async with make_host({"c": counter()}) as host:
        session = await host.open(Opening(cwd=tmp_path))
        await host.close_session(session)
        with refused(codes.SCOPE_CLOSED):
            await session.record.add(Replied(message_id="m", text="late"))
        with refused(codes.SCOPE_CLOSED):
            await session.call("c.count")


async def test_a_session_that_is_open_here_is_not_deleted(make_host: HostFactory, tmp_path: Path) -> None:
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        with refused(codes.SESSION_HELD):
            await host.forget(session.context.session_id)
        assert await host.store.session(session.context.session_id)


async def test_a_server_that_was_listed_while_the_disk_was_full_is_there_when_there_is_space(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.session.listing._RETRY_SECONDS", 0.2)
    looks = Listing._once  # pyright: ignore[reportPrivateUsage]
    async with failing(make_host, tmp_path) as (host, disk):

        async def on_a_full_disk(listing: Listing) -> None:
            if listing.spec.name == "c":
                disk.fails_with = sqlite3.SQLITE_FULL
                await looks(listing)
                disk.fails_with = 0
            else:
                await looks(listing)

        with monkeypatch.context() as patched:
            patched.setattr(Listing, "_once", on_a_full_disk)
            session = await host.open(Opening(cwd=tmp_path))
            await session.ready()
        refusals = [refusal.server for refusal in session.refusals]
        async with asyncio.timeout(20):
            while "c" not in session.up:
                await asyncio.sleep(0.05)
        answer = await session.call("c.count")
        await host.close_session(session)

    assert (refusals, answer.text) == (["c"], "1")
