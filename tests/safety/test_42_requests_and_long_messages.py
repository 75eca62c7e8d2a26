"""Attack 42: requests, progress and long messages of a server take the event loop's time, or memory, at other sessions' cost."""

import asyncio
import os
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.responses import Response
from yarl import URL

from holdfast.acp.door import EditorDoor
from holdfast.acp.messages import ClientCapabilities
from holdfast.connect import connection as connection_module
from holdfast.connect import server_messages as server_messages_module
from holdfast.connect import server_requests as server_requests_module
from holdfast.connect.connection import Connection
from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.connect.http.event_stream import StreamPosition, read_body, read_messages
from holdfast.connect.http.pools import Pool
from holdfast.connect.http.response import HttpResponse
from holdfast.connect.scope import Scope
from holdfast.connect.server_messages import ServerMessages
from holdfast.connect.server_requests import ServerRequests
from holdfast.connect.stderr import ServerStderr, capture_stderr
from holdfast.masking.mask import Mask
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_session_id
from holdfast.model.light_event import LightEvent
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.session import calls as calls_module
from holdfast.wire import loop_throttle as loop_throttle_module
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.mcp import client as client_module
from holdfast.wire.message_memory import LONG_LINE_BYTES, LongLineMemory
from holdfast.wire.messages import Notification, Raw, Request
from holdfast.wire.parse_threads import run_in_parse_thread
from holdfast.wire.peer import Peer
from holdfast.wire.strict_json import decode_json
from tests.connect.conftest import HostFactory, make_host
from tests.connect.http.raw import HEAD, RawServer, fetch, resolve_to, send, serve_answers, sized_response
from tests.connect.web import ScriptedServer, connect_options, http_entry, result_response, serve
from tests.safety.test_34_endless_lists import connected_client

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio
attack_and_control = pytest.mark.parametrize("is_control", [False, True], ids=["attack", "control"])


@pytest.fixture(autouse=True)
def no_other_busy_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the owners of earlier tests: the share of each owner is smaller while others are busy."""
    monkeypatch.setattr(loop_throttle_module, "_busy", {})


def server_requests(scope: Scope | None = None, door: Door | None = None) -> ServerRequests:
    spec = ServerSpec(name="s", transport=Stdio(command="s"), source=Source.OPERATOR)
    return ServerRequests(spec, scope, door)


def session_scope(*roots: str) -> Scope:
    return Scope(SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT, roots=roots))


async def answered_at_once(requests: ServerRequests, method: str) -> int:
    """How many of 1000 requests are answered before the others have to wait for their turn."""
    answered = 0

    async def ask() -> None:
        nonlocal answered
        await requests.answer(method, Raw(b"{}"))
        answered += 1

    tasks = [asyncio.create_task(ask()) for _ in range(1000)]
    await asyncio.sleep(0)
    at_once = answered
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return at_once


# Progress and requests


@attack_and_control
def test_long_progress_is_ignored(is_control: bool, monkeypatch: pytest.MonkeyPatch):
    if is_control:
        monkeypatch.setattr(server_messages_module, "_MAX_PROGRESS_BYTES", 10**9)
    messages, lengths = ServerMessages(server_requests()), list[int]()
    with messages.listen_for_progress(lambda params: lengths.append(len(params["message"]))) as token:
        for text in ("short", "x" * 1_000_000):
            params = b'{"progressToken":%d,"message":"%b"}' % (token, text.encode())
            messages.receive(Notification("notifications/progress", Raw(params)))

    assert lengths == ([5, 1_000_000] if is_control else [5])


@attack_and_control
async def test_requests_of_a_server_count_for_its_session(is_control: bool, monkeypatch: pytest.MonkeyPatch):
    if is_control:
        monkeypatch.setattr(server_requests_module, "_ANSWER_SECONDS", 0.0)

    at_once = await answered_at_once(server_requests(), "ping")

    assert at_once == 1000 if is_control else 0 < at_once < 300


@attack_and_control
async def test_each_answer_with_long_roots_counts_by_its_length(
    is_control: bool, monkeypatch: pytest.MonkeyPatch
):
    if is_control:
        monkeypatch.setattr(server_requests_module, "_COPY_SECONDS_PER_BYTE", 0.0)
    requests = server_requests(session_scope(*(f"/{number}{'d' * 4000}" for number in range(100))))

    at_once = await answered_at_once(requests, "roots/list")

    assert at_once > 40 if is_control else 0 < at_once < 20


async def test_roots_are_encoded_once_as_long_as_they_are_the_same():
    scope = session_scope("/a", "/b")
    requests = server_requests(scope)
    first, again = [await requests.answer("roots/list", Raw(b"{}")) for _ in range(2)]
    scope.update_context(replace(scope.context, roots=("/c",)))
    other = await requests.answer("roots/list", Raw(b"{}"))

    assert (again is first, bytes(other)) == (True, b'{"roots":[{"uri":"file:///c"}]}')


def charge_nothing(self: LoopThrottle, started: float, *, includes_waiting: bool = False) -> bool:
    return False


def never_wait(self: LoopThrottle, now: float) -> bool:
    return False


@attack_and_control
async def test_time_to_check_a_refused_question_is_charged(is_control: bool, monkeypatch: pytest.MonkeyPatch):
    field = {"type": "string", "description": "\u1234" * 200}
    fields = {**{f"f{number}": field for number in range(19)}, "password": {"type": "string"}}
    question = {"message": "?", "requestedSchema": {"type": "object", "properties": fields}}
    can_elicit = msgspec.convert({"elicitation": {"form": {}}}, ClientCapabilities)
    scope = session_scope()
    scope.throttle = LoopThrottle("without a burst")
    must_wait = scope.throttle.must_wait
    requests = server_requests(scope, EditorDoor(Peer(), can_elicit))
    monkeypatch.setattr(server_requests_module, "_ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(LoopThrottle, "must_wait", never_wait)
    if is_control:
        monkeypatch.setattr(LoopThrottle, "charge_since", charge_nothing)

    for _ in range(50):
        with pytest.raises(HoldfastError, match="asks for a password"):
            await requests.answer("elicitation/create", Raw(msgspec.json.encode(question)))

    assert must_wait(time.monotonic()) is not is_control


# Long results


@attack_and_control
@pytest.mark.parametrize("decoder", ["input requests", "cursor of a page"])
async def test_long_result_is_not_decoded_on_the_event_loop(
    is_control: bool, decoder: str, monkeypatch: pytest.MonkeyPatch
):
    threads: list[str] = []

    def recording(decode: Callable[[Raw], Any]) -> Callable[[Raw], Any]:
        def record(raw: Raw) -> Any:
            threads.append(threading.current_thread().name)
            return decode(raw)

        return record

    async def answer(request: Request) -> Any:
        return {"contents": [{"uri": "note://long", "text": "x" * 1_000_000}]}

    if is_control:
        monkeypatch.setattr(client_module, "_THREAD_BYTES", 10**9)
    async with connected_client(answer) as client:
        connection = Connection(client, ended=LightEvent(), server_messages=ServerMessages(server_requests()))
        if decoder == "input requests":
            decode = connection_module._decode_interim  # pyright: ignore[reportPrivateUsage]
            monkeypatch.setattr(connection_module, "_decode_interim", recording(decode))
            await connection.request("resources/read", {"uri": "note://long"})
        else:
            decode = client_module._decode_cursor  # pyright: ignore[reportPrivateUsage]
            monkeypatch.setattr(client_module, "_decode_cursor", recording(decode))
            await connection.list_all("resources/list", "resources")

    assert threads == [threading.current_thread().name if is_control else "holdfast-parse"]


@pytest.mark.parametrize("length", [10, 1_000_000], ids=["control", "attack"])
async def test_long_resource_is_decoded_in_a_thread(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
):
    in_thread: list[object] = []

    async def record(function: Callable[..., Any], text: Raw, *, throttle: LoopThrottle) -> Any:
        in_thread.append(function)
        return await run_in_parse_thread(function, text, throttle=throttle)

    async def answer(scripted: ScriptedServer, request: Any, message: dict[str, Any]) -> Response | None:
        if message.get("method") != "resources/read":
            return None
        return result_response(message, {"contents": [{"uri": "note://a", "text": "x" * length}]})

    monkeypatch.setattr(calls_module, "run_in_parse_thread", record)
    async with (
        serve(ScriptedServer(answer)) as url,
        make_host({"web": http_entry(url)}, options=connect_options()) as host,
        host.session(cwd=tmp_path) as session,
    ):
        read = await session.read_resource("web", "note://a")

    assert (len(read["contents"][0]["text"]), in_thread) == (
        length,
        [decode_json] if length > LONG_LINE_BYTES else [],
    )


# Bodies and events of HTTP servers


async def read_whole_body(response: HttpResponse, throttle: LoopThrottle) -> None:
    await read_body(response, DEFAULT_LIMITS, throttle)


async def read_stream(response: HttpResponse, throttle: LoopThrottle) -> None:
    async for _ in read_messages(response, StreamPosition(), DEFAULT_LIMITS, throttle):
        pass


UNFINISHED = {
    read_whole_body: HEAD + b"Content-Length: 400000\r\n\r\n" + b"x" * 300_000,
    read_stream: HEAD + b"Content-Length: 400000\r\n\r\ndata: " + b"x" * 299_994,
}


@pytest.mark.parametrize("read", UNFINISHED, ids=lambda read: read.__name__)
async def test_unfinished_bodies_of_a_session_share_its_memory(read: Callable[..., Any]):
    throttle = LoopThrottle("session")
    throttle.long_line_memory = memory = LongLineMemory(1_000_000)
    async with reading_unfinished(read, throttle) as (tasks, pool, answer):
        async with asyncio.timeout(20):
            while sum(task.done() for task in tasks) < 3:
                await asyncio.wait(
                    [task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED
                )
        refused = [str(task.exception()) for task in tasks if task.done()]
        short = await fetch(pool, answer.url)

    assert 3 <= len(refused) <= 4
    assert {"does not fit" in reason for reason in refused} == {True}
    assert (short, free_bytes(memory)) == (b"short", 1_000_000)


@pytest.mark.parametrize("read", UNFINISHED, ids=lambda read: read.__name__)
async def test_control_with_enough_memory_all_are_kept(read: Callable[..., Any]):
    throttle = LoopThrottle("session")
    throttle.long_line_memory = memory = LongLineMemory(10**9)
    async with reading_unfinished(read, throttle) as (tasks, _, _), asyncio.timeout(20):
        while free_bytes(memory) > 10**9 - 5 * 299_000:
            await asyncio.sleep(0.005)
        assert not any(task.done() for task in tasks)


@asynccontextmanager
async def reading_unfinished(
    read: Callable[..., Any], throttle: LoopThrottle
) -> AsyncIterator[tuple[list[asyncio.Task[None]], Pool, RawServer]]:
    """Read five answers of a server that does not finish any of them."""
    pool = Pool(
        AddressPolicy(public_only=False), ssl.create_default_context(), look_up=resolve_to("127.0.0.1")
    )

    async def read_one(url: URL) -> None:
        response = await send(pool, url)
        try:
            await read(response, throttle)
        finally:
            response.close()

    async with (
        serve_answers(*[UNFINISHED[read]] * 5) as unfinished,
        serve_answers(sized_response(b"short")) as answer,
    ):
        tasks = [asyncio.create_task(read_one(unfinished.url)) for _ in range(5)]
        try:
            yield tasks, pool, answer
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await pool.close()


def free_bytes(memory: LongLineMemory) -> int:
    return memory._free  # pyright: ignore[reportPrivateUsage]


# Standard error


NOISY = ServerSpec(name="s", source=Source.USER, transport=Stdio(command="s"))


@pytest.mark.anyio
async def test_calls_that_fail_at_once_mask_the_same_output_once(monkeypatch: pytest.MonkeyPatch):
    masked: list[int] = []
    mask_all = Mask.mask_all

    def spy(mask: Mask, text: str) -> str:
        masked.append(len(text))
        return mask_all(mask, text)

    monkeypatch.setattr(Mask, "mask_all", spy)
    throttle = LoopThrottle()
    stderr = ServerStderr(NOISY, throttle)
    stderr.data_received(b"a=b-c: a=b-c:\n" * 2800)
    reports = await asyncio.gather(*(stderr.report_since_throttled(start) for start in range(0, 1400, 14)))

    assert (len(set(reports)), len(masked), masked[0] <= 8 * 1024) == (1, 1, True)
    throttle.charge(1.0)  # the session has used its share: the next report waits for its turn
    waiting = asyncio.create_task(stderr.report_since_throttled(stderr.position - 1400))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (waiting.done(), len(masked)) == (False, 1)
    stderr.report_since(stderr.position - 1400)  # the control: it masks at once
    assert len(masked) == 2
    waiting.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("is_throttled", [True, False])
async def test_flood_of_standard_error_is_read_within_the_sessions_share(is_throttled: bool):
    throttle = LoopThrottle()
    if not is_throttled:  # the control: the loop reads nothing else
        throttle = Unlimited()
    reader, writer = os.pipe()
    chunks, was_paused = 400, False
    stderr, transport = await capture_stderr(os.fdopen(reader, "rb"), NOISY, throttle)
    flood = threading.Thread(target=lambda: [os.write(writer, b"x" * 65536) for _ in range(chunks)])
    flood.start()
    while stderr.position < chunks * 65536:
        await asyncio.sleep(0)
        was_paused = was_paused or not transport.is_reading()
    flood.join()
    os.close(writer)
    transport.close()

    assert was_paused is is_throttled


class Unlimited(LoopThrottle):
    def charge(self, seconds: float, now: float | None = None) -> bool:
        return False
