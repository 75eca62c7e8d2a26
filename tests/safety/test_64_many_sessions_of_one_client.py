"""Attack 64: one client opens many sessions, so that quotas that are counted for each session add up."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse

from holdfast.connect.http import link_tasks as link_tasks_module
from holdfast.connect.http.link_tasks import LinkTasks
from holdfast.connect.scope import Scope
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.event import Replied
from holdfast.model.json import JsonObject
from holdfast.model.worker_threads import WorkerThreads
from holdfast.session.session import Session
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.writer import Writer
from holdfast.store.store import Tx
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.messages import Malformed, Message, Notification, Raw, Request
from holdfast.wire.peer import Peer
from tests.connect.conftest import HostFactory, make_host
from tests.connect.web import ScriptedServer, handshake_response, http_entry, serve
from tests.gateway.running import Client, modern_call, read_answer, running_gateway
from tests.store.sessions import hold_session, texts

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08")]
attack_and_control = pytest.mark.parametrize("is_control", [False, True], ids=["attack", "control"])
LARGE = "large " * 100_000
FEW_LINKS = {"HOLDFAST_LINKS_MAX_OPEN": "4"}


def count_for_each_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the protection, each session is an owner of its own."""
    monkeypatch.setattr(Scope, "quota_owner", property(session_id_of))


def session_id_of(of: Scope | SessionContext) -> str:
    return of.session_id if isinstance(of, SessionContext) else of.context.session_id


# Connected servers


@pytest.mark.parametrize(("era", "is_control"), [("handshake", False), ("modern", False), ("modern", True)])
async def test_sessions_of_one_token_leave_connections_for_another(
    era: str, is_control: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if is_control:
        count_for_each_session(monkeypatch)
    async with (
        serve(ScriptedServer(answer_both_eras)) as url,
        running_gateway(tmp_path, FEW_LINKS, servers={"s": http_entry(url)}) as running,
    ):
        greedy, other = running.token("greedy"), running.token("other")
        connected = [await is_connected(running.url, greedy, era) for _ in range(4)]
        is_served = await is_connected(running.url, other, era)

    assert (sum(connected), is_served) == ((4, False) if is_control else (2, True))


async def answer_both_eras(
    scripted: ScriptedServer, request: HttpRequest, message: dict[str, Any]
) -> Response | None:
    return handshake_response(message) if message.get("method") != "server/discover" else None


async def is_connected(url: str, token: str, era: str) -> bool:
    """Whether a call in a new session reaches the server."""
    if era == "handshake":
        async with Client(url, token) as client:
            return "gone" in str(await client.call("go"))
    body, headers = modern_call("go")
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False) as http:
        base = url.removesuffix("/mcp")
        handle = (await http.post(f"{base}/s")).json()
        answer = await http.post(base + handle["path"], json=body, headers=headers)
    return "gone" in str(read_answer(answer))


@attack_and_control
async def test_sessions_inside_a_session_use_its_quota(
    is_control: bool, make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if is_control:
        count_for_each_session(monkeypatch)
    async with serve(ScriptedServer()) as url:
        host = make_host({"s": http_entry(url)}, **FEW_LINKS)
        async with host, host.session(cwd=tmp_path) as parent:
            children = [await host.open(OpenOptions(cwd=tmp_path, parent=parent)) for _ in range(3)]
            other = await host.open(OpenOptions(cwd=tmp_path))
            connected = [await has_server(session) for session in (parent, *children)]
            is_served = await has_server(other)

    assert (sum(connected), is_served) == ((4, False) if is_control else (2, True))


async def has_server(session: Session) -> bool:
    await session.wait_ready()
    return not session.refusals


# Threads and the time of the event loop


@attack_and_control
async def test_every_pool_of_threads_counts_large_calls_for_the_token(
    is_control: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The kind: no pool of threads that owners share counts for one session of a token."""
    owners: dict[str, set[str]] = {}
    run = WorkerThreads.run

    async def record(self: Any, function: Any, *args: Any, owner: str = "") -> Any:
        if self._is_shared:
            owners.setdefault(self._name, set()).add(owner)
        return await run(self, function, *args, owner=owner)

    if is_control:
        monkeypatch.setattr(SessionContext, "payer", property(session_id_of))
    async with running_gateway(tmp_path) as running:
        token = running.token("greedy")
        async with Client(running.url, token) as first, Client(running.url, token) as second:
            for client in (first, second):  # the servers are started by the first request
                await client.call("add")
            monkeypatch.setattr(WorkerThreads, "run", record)
            for client in (first, second):
                answer = await client.call("repeat", text=LARGE)
                assert LARGE in str(answer)
            sessions = {served.session.describe().session_id for served in running.gateway.app.sessions}

    assert owners.keys() >= {"parse", "mask"}
    assert sessions.isdisjoint({owner for names in owners.values() for owner in names}) is not is_control
    assert (owners["parse"] | owners["mask"] == {token.split("_")[1]}) is not is_control


@attack_and_control
async def test_built_in_servers_count_for_the_owner_of_the_sessions(
    is_control: bool, make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    owners: set[str] = set()
    run = WorkerThreads.run

    async def record(self: Any, function: Any, *args: Any, owner: str = "") -> Any:
        if self._name in ("files", "find", "parse"):
            owners.add(owner)
        return await run(self, function, *args, owner=owner)

    if is_control:
        monkeypatch.setattr(SessionContext, "payer", property(session_id_of))
    monkeypatch.setattr(WorkerThreads, "run", record)
    sessions: set[str] = set()
    async with make_host({}) as host:
        for _ in range(2):
            session = await host.open(OpenOptions(cwd=tmp_path, quota_owner="client"))
            sessions.add(session.context.session_id)
            written = await session.call("files.write", {"path": "long", "text": "x\n" * 100_000})
            found = await session.call("files.find", {"glob": "*"})
            assert (written.ok, found.ok) == (True, True)

    assert owners == (sessions if is_control else {"client"})


async def test_sessions_of_one_owner_share_the_time_of_the_loop(make_host: HostFactory, tmp_path: Path):
    async with make_host({}) as host:
        first, second = [
            await host.open(OpenOptions(cwd=tmp_path, quota_owner="credential a")) for _ in range(2)
        ]
        other = await host.open(OpenOptions(cwd=tmp_path, quota_owner="credential b"))
        alone = await host.open(OpenOptions(cwd=tmp_path))
        throttles = [session.scope.throttle for session in (first, second, other, alone)]

    assert throttles[0] is throttles[1]
    assert len({*throttles}) == 3
    assert [throttle.owner for throttle in throttles[1:]] == [
        "credential a",
        "credential b",
        alone.context.session_id,
    ]


# Writes to the store


async def transactions_before(
    store: SqliteStore, owners: list[str], *, events: int, size: int
) -> tuple[int, int]:
    """How many transactions there are before a short event of another owner is stored, and in all.

    Before the first of them, each of these owners' sessions has queued this many events of this size.
    """
    commits, began, go_on = 0, threading.Event(), threading.Event()

    def count(_: object) -> None:
        nonlocal commits
        commits += 1

    def block(_: Tx) -> None:
        began.set()
        go_on.wait(10)

    appenders = [
        store.appender(await hold_session(store), window=1024, quota_owner=owner) for owner in owners
    ]
    other = store.appender(await hold_session(store), quota_owner="other")
    blocking = asyncio.ensure_future(store.write(block))
    await asyncio.to_thread(began.wait, 10)
    store.after_commit(count)
    for appender in appenders:
        for _ in range(events):
            await appender.append(Replied(message_id="msg_0", text="x" * size), size=size)
        appender.commit_now()
    stored_at: list[int] = []
    await other.append(
        Replied(message_id="msg_0", text="short"), on_append=lambda _: stored_at.append(commits), size=5
    )
    other.commit_now()
    go_on.set()
    await asyncio.gather(blocking, other.flush(), *(appender.flush() for appender in appenders))
    return stored_at[-1], commits


@attack_and_control
@pytest.mark.parametrize("owners", [["greedy"] * 24, [f"greedy {number}" for number in range(6)]])
async def test_a_short_write_waits_for_one_transaction_of_large_ones(
    owners: list[str], is_control: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if is_control:
        take_all_in_order(monkeypatch)
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        bytes_before: list[int] = []
        spy_on_bytes(monkeypatch, bytes_before)
        before, total = await transactions_before(store, owners, events=1, size=1_000_000)

    largest = max(bytes_before)
    assert (before <= 1, total >= len(owners) // 2) == (True, not is_control)
    assert largest >= 5_000_000 if is_control else largest <= 2_000_000


@attack_and_control
async def test_events_that_one_session_has_queued_are_stored_in_small_transactions(
    is_control: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if is_control:
        monkeypatch.setattr("holdfast.store.appender._MAX_BATCH_BYTES", 10**9)
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        bytes_written: list[int] = []
        spy_on_bytes(monkeypatch, bytes_written)
        before, _ = await transactions_before(store, ["greedy"], events=200, size=50_000)

    assert before <= 1
    assert max(bytes_written) >= 5_000_000 if is_control else max(bytes_written) <= 300_000


def spy_on_bytes(monkeypatch: pytest.MonkeyPatch, written: list[int]) -> None:
    """Note the bytes of each transaction."""
    commit = Writer._commit

    def record(self: Any, db: Any, tx: Any, items: Any) -> None:
        written.append(sum(item.size for item in items))
        commit(self, db, tx, items)

    monkeypatch.setattr(Writer, "_commit", record)


def take_all_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the protection, all writes that wait are one transaction."""
    monkeypatch.setattr("holdfast.store.sqlite.write_turns.MAX_BATCH_BYTES", 10**9)


async def test_large_writes_are_all_made_and_in_order_when_the_store_is_closed(tmp_path: Path):
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        holds = [await hold_session(store) for _ in range(8)]
        appenders = [store.appender(hold, quota_owner="greedy") for hold in holds]
        pending = [
            await appender.append(Replied(message_id="msg_0", text=f"{number} {'x' * 500_000}"), size=500_000)
            for number in range(4)
            for appender in appenders
        ]
        for appender in appenders:
            appender.commit_now()
        await asyncio.gather(*(event.wait_durable() for event in pending))
    async with SqliteStore(path) as store:
        for hold in holds:
            stored = await texts(store, hold.session_id)
            assert [text.split()[0] for text in stored] == ["0", "1", "2", "3"]


# Answers to the requests of remote servers


async def messages_before_a_pause(message: Message) -> int:
    """How many messages like this one are delivered at once."""
    throttle = LoopThrottle("owner", burst_seconds=0.01)
    links = [LinkTasks(Peer(throttle=throttle)) for _ in range(24)]
    for number in range(1000):
        await links[number % len(links)].wait_for_capacity(message)
        if throttle.begin_pause():
            return number + 1
    return 1000


@attack_and_control
@pytest.mark.parametrize(
    "message",
    [Request(1, "elicitation/create", Raw(b"{}")), Malformed(codes.INVALID_REQUEST, "It is no object.", 1)],
    ids=["request", "malformed"],
)
async def test_an_answer_is_charged_to_the_owner_of_all_links(
    message: Message, is_control: bool, monkeypatch: pytest.MonkeyPatch
):
    if is_control:
        monkeypatch.setattr(link_tasks_module, "_ANSWER_SECONDS", 0.0)

    at_once = await messages_before_a_pause(message)

    assert at_once == 1000 if is_control else 0 < at_once <= 30


async def test_a_notification_is_not_charged_as_an_answer():
    notification = Notification("notifications/message", Raw(b"{}"))

    assert await messages_before_a_pause(notification) == 1000


REQUESTS = 120


@attack_and_control
@pytest.mark.parametrize("transport", ["call", "stream"])
async def test_requests_are_not_read_while_many_answers_wait(
    transport: str,
    is_control: bool,
    make_host: HostFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """The server never takes an answer. It asks on the stream of a call, or on its own stream."""
    if is_control:
        monkeypatch.setattr(link_tasks_module, "MAX_POSTS", 10**6)
        monkeypatch.setattr("holdfast.connect.http.streamable.MAX_POSTS", 10**6)
    answers = 0
    has_asked = asyncio.Event()

    async def ask() -> AsyncIterator[bytes]:
        for number in range(REQUESTS):
            request: JsonObject = {
                "jsonrpc": "2.0",
                "id": number,
                "method": "elicitation/create",
                "params": {},
            }
            yield b"data: " + msgspec.json.encode(request) + b"\n\n"
        has_asked.set()
        await asyncio.Event().wait()

    async def answer(scripted: ScriptedServer, request: HttpRequest, message: Any) -> Response | None:
        nonlocal answers
        if request.method == "GET" and transport == "stream":
            return StreamingResponse(ask(), media_type="text/event-stream")
        if message.get("method") == "tools/call" and transport == "call":
            return StreamingResponse(ask(), media_type="text/event-stream")
        if "id" in message and "method" not in message:
            answers += 1
            await asyncio.Event().wait()
        return handshake_response(message)

    async with serve(ScriptedServer(answer)) as url:
        host = make_host({"s": {**http_entry(url), "tools": ["go"]}})
        before = len(asyncio.all_tasks())
        async with host, host.session(cwd=tmp_path) as session:
            call = asyncio.create_task(session.call("s.go"))
            await has_asked.wait()
            expected = REQUESTS if is_control else 16
            while answers < expected:
                await asyncio.sleep(0)
            for _ in range(3000):
                await asyncio.sleep(0)
            waiting = len(asyncio.all_tasks()) - before
            call.cancel()
            await asyncio.wait([call])

    assert answers == REQUESTS if is_control else answers == 16
    assert waiting >= REQUESTS if is_control else waiting < 100
