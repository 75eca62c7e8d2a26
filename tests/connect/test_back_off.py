"""A server that keeps failing is started again with growing delays. Starts of real processes are counted."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.connect.back_off import NO_BACK_OFF, BackOff
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.link import Link, LinkState
from holdfast.gateway.status import status_result
from holdfast.host.open_options import OpenOptions
from holdfast.model.allowlist import ALLOW_ALL
from holdfast.model.event import Decision
from holdfast.model.permission import Mode
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory
from tests.connect.web import ScriptedServer, free_port, http_entry, serve
from tests.session.support import ScriptedUser

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-10")]

SHARED = {"lifetime": "host"}


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    @property
    def options(self) -> ConnectOptions:
        return ConnectOptions(end_seconds=0.5, back_off=BackOff(clock=self))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    """The file in which the crashing server notes its starts."""
    return tmp_path / "starts"


def count(starts: Path) -> int:
    return len(starts.read_text().splitlines())


def crashing_entry(starts: Path, **more: Any) -> dict[str, Any]:
    args = ["-I", "-S", str(Path(__file__).with_name("crashing_server.py")), str(starts)]
    return {"command": sys.executable, "args": args, "env": {"tests_marker": str(os.getpid())}, **more}


async def call_and_count(session: Session, starts: Path, tool: str = "c.crash") -> tuple[str, int]:
    return (await session.call(tool)).code, count(starts)


def link_of(session: Session) -> Link:
    link = session._servers._deps.links._find(session.scope, session.server("c"))
    assert link is not None
    return link


async def wait_for_end(session: Session) -> None:
    """Wait until the link has noted when the server that crashed has ended."""
    while link_of(session).state is LinkState.LIVE:
        await asyncio.sleep(0)


async def wait_for_stderr(session: Session) -> None:
    """Wait until the standard error of the server that crashed has been read to its end."""
    link = link_of(session)
    stderr = link._ready.result().stderr
    assert stderr is not None
    await stderr.closed.wait()


def test_delay_doubles_up_to_the_longest():
    delays = [BackOff().delay(failures) for failures in range(11)]

    assert delays == [0, 0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert BackOff().delay(10**6) == 30


async def test_server_that_crashes_at_every_call_is_started_with_growing_delays(
    make_host: HostFactory, folder: Path, starts: Path, clock: Clock
):
    async with (
        make_host({"c": crashing_entry(starts)}, options=clock.options) as host,
        host.session(cwd=folder) as session,
    ):
        seen = [await call_and_count(session, starts) for _ in range(4)]
        for delay in (0.5, 1, 2):
            await wait_for_end(session)
            clock.now += delay - 0.1
            seen.append(await call_and_count(session, starts))
            clock.now += 0.1
            seen.append(await call_and_count(session, starts))

    assert seen == [
        ("CONNECTION_CLOSED", 1),
        ("CONNECTION_CLOSED", 2),  # the first restart is not delayed
        ("RESTART_DELAYED", 2),
        ("RESTART_DELAYED", 2),
        ("RESTART_DELAYED", 2),
        ("CONNECTION_CLOSED", 3),
        ("RESTART_DELAYED", 3),
        ("CONNECTION_CLOSED", 4),
        ("RESTART_DELAYED", 4),
        ("CONNECTION_CLOSED", 5),
    ]


async def test_control_without_back_off_every_call_starts_the_server(
    make_host: HostFactory, folder: Path, starts: Path
):
    options = ConnectOptions(end_seconds=0.5, back_off=NO_BACK_OFF)
    async with (
        make_host({"c": crashing_entry(starts)}, options=options) as host,
        host.session(cwd=folder) as session,
    ):
        seen = [await call_and_count(session, starts) for _ in range(4)]

    assert seen == [("CONNECTION_CLOSED", number) for number in (1, 2, 3, 4)]


async def test_delayed_call_says_why_and_when_and_the_user_is_not_asked(
    make_host: HostFactory, folder: Path, starts: Path, clock: Clock
):
    user = ScriptedUser(Decision.ALLOW_ONCE, Decision.ALLOW_ONCE)
    async with (
        make_host({"c": crashing_entry(starts)}, options=clock.options) as host,
        host.session(cwd=folder, permission=Mode.ASK) as session,
    ):
        session.attach(user)
        for _ in range(2):
            await session.call("c.crash")
        await wait_for_end(session)
        clock.now += 0.2
        await wait_for_stderr(session)
        delayed = await session.call("c.fine")  # a third question would fail

    assert delayed.message == (
        "'c' is not running: it failed 2 times in a row. The first call after 0.3 s starts it again. "
        "It wrote to stderr:\n| out of memory"
    )
    assert delayed.outcome == "refused"


async def test_views_of_the_servers_say_whether_the_next_call_starts_a_failed_one(
    make_host: HostFactory, folder: Path, starts: Path, clock: Clock
):
    async with (
        make_host({"c": crashing_entry(starts)}, options=clock.options) as host,
        host.session(cwd=folder) as session,
    ):
        views: list[tuple[str, str, str]] = []
        for _ in range(2):
            await session.call("c.crash")
            await wait_for_end(session)
            await wait_for_stderr(session)
            listed, why = [(await session.prompt(f"/{command}")).text for command in ("servers", "why c")]
            status = str(status_result(session, ALLOW_ALL)["content"])
            views.append((listed, why, status))

    (listed, why, status), (delayed_listed, delayed_why, delayed_status) = views
    delayed = "'c' is not running: it failed 2 times in a row. The first call after 0.5 s starts it again."
    assert "- c: ended; the next call starts it again\n" in listed
    assert why == "c has ended; the next call starts it again. /logs c shows what it has written.\n"
    assert "Server c: It has ended; the next call starts it again." in status
    assert "- c: keeps failing, so its restart is delayed; /why c shows the reason\n" in delayed_listed
    assert delayed_why == f"{delayed} It wrote to stderr:\n| out of memory\n"
    assert f"Server c: {delayed}" in delayed_status


async def test_server_that_fails_to_start_is_delayed_with_its_reason(
    make_host: HostFactory, folder: Path, starts: Path, clock: Clock
):
    async with (
        make_host({"c": crashing_entry(starts)}, options=clock.options) as host,
        host.session(cwd=folder) as session,
    ):
        await session.call("c.crash")
        starts.with_name("broken").touch()
        failed, delayed = await session.call("c.fine"), await session.call("c.fine")
        starts.with_name("broken").unlink()
        clock.now += 0.5
        fine, again = await session.call("c.fine"), await session.call("c.fine")

    assert [answer.code for answer in (failed, delayed)] == ["CONNECTION_CLOSED", "RESTART_DELAYED"]
    assert delayed.message.endswith(failed.message)
    assert (
        "It exited with status 7 before the MCP negotiation was complete.\nIt wrote to stderr:\n| no licence found"
        in failed.message
    )
    assert (fine.ok, fine.state_lost, again.state_lost, count(starts)) == (True, True, False, 3)


@pytest.mark.parametrize(("uptime", "expected"), [(5.0, "RESTART_DELAYED"), (5.1, "CONNECTION_CLOSED")])
async def test_server_that_stayed_up_for_a_while_is_restarted_without_delay(
    make_host: HostFactory, folder: Path, starts: Path, clock: Clock, uptime: float, expected: str
):
    async with (
        make_host({"c": crashing_entry(starts)}, options=clock.options) as host,
        host.session(cwd=folder) as session,
    ):
        for _ in range(2):
            await session.call("c.crash")
        await wait_for_end(session)
        clock.now += 0.5
        assert (await session.call("c.fine")).ok
        clock.now += uptime
        crashed, after = await session.call("c.crash"), await session.call("c.crash")

    assert (crashed.code, after.code) == ("CONNECTION_CLOSED", expected)


async def test_delay_of_a_shared_server_holds_for_all_sessions_but_not_for_opening_one(
    make_host: HostFactory, folder: Path, starts: Path, clock: Clock
):
    async with (
        make_host({"c": crashing_entry(starts, **SHARED)}, options=clock.options) as host,
        host.session(cwd=folder) as one,
        host.session(cwd=folder) as other,
    ):
        for _ in range(2):
            await one.call("c.crash")
        delayed = await other.call("c.fine")
        before = count(starts)
        async with host.session(cwd=folder) as third:
            fine = await third.call("c.fine")
        after = count(starts)
        again = [(await one.call(tool)).code for tool in ("c.crash", "c.fine")]

    assert (delayed.code, "out of memory" in delayed.message) == ("RESTART_DELAYED", False)
    assert (fine.ok, before, after, third.refusals) == (True, 2, 3, ())
    assert again == ["CONNECTION_CLOSED", "RESTART_DELAYED"]


async def test_delay_of_a_server_holds_for_its_session_only_and_ends_with_it(
    make_host: HostFactory, folder: Path, starts: Path, clock: Clock
):
    async with make_host({"c": crashing_entry(starts)}, options=clock.options) as host:
        session = await host.open(OpenOptions(cwd=folder))
        for _ in range(2):
            await session.call("c.crash")
        delayed = await session.call("c.fine")
        async with host.session(cwd=folder) as other:
            fine = await other.call("c.fine")
        await session.close()
        reopened = await host.reopen(session.context.session_id, OpenOptions(cwd=folder))
        fine_again = await reopened.call("c.fine")
        await reopened.close()

        assert (delayed.code, fine.ok, fine_again.ok) == ("RESTART_DELAYED", True, True)
        assert host.links._by_scope == {}


async def test_remote_server_that_cannot_be_reached_is_delayed(
    make_host: HostFactory, folder: Path, clock: Clock
):
    port = free_port()
    async with make_host({"web": http_entry(f"http://127.0.0.1:{port}")}, options=clock.options) as host:
        async with serve(ScriptedServer(), port):
            session = await host.open(OpenOptions(cwd=folder))
            assert (await session.call("web.go")).ok
        down = [(await session.call("web.go")).code for _ in range(4)]
        async with serve(ScriptedServer(), port):
            clock.now += 30
            after = await session.call("web.go")
            await session.close()

    assert (down[0], down[-1], after.ok) == ("CONNECTION_CLOSED", "RESTART_DELAYED", True)


async def test_missing_login_delays_nothing(make_host: HostFactory, folder: Path, clock: Clock):
    port = free_port()
    async with make_host({"web": http_entry(f"http://127.0.0.1:{port}")}, options=clock.options) as host:
        async with serve(ScriptedServer(), port):
            session = await host.open(OpenOptions(cwd=folder))
            assert (await session.call("web.go")).ok
        async with serve(_require_login, port):
            codes = [(await session.call("web.go")).code for _ in range(4)]
            await session.close()

    assert codes[1:] == ["LOGIN_NEEDED"] * 3


async def _require_login(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        return
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b""})
