"""Remote servers that misbehave: the one call fails with a clear error, and the link stays usable."""

import asyncio
import gzip
import json
import resource
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from holdfast.model.limits import Limits
from holdfast.model.trust import Trust
from tests.connect.conftest import HostFactory
from tests.connect.web import (
    ScriptedServer,
    connect_options,
    hang_after_start,
    http_entry,
    open_session,
    result_response,
    serve,
    sse_entry,
)

pytestmark = pytest.mark.anyio

LIMIT = 64 * 1024
GOOD: dict[str, Any] = {"content": [{"type": "text", "text": "gone"}]}


def body(text: str | bytes, kind: str = "application/json", **headers: str) -> Response:
    return Response(text, media_type=kind, headers=headers)


async def drip() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.02)


async def endless(part: bytes) -> AsyncIterator[bytes]:
    while True:
        yield part
        await asyncio.sleep(0)


def events(*texts: str) -> Response:
    return body("".join(f"data: {text}\n\n" for text in texts), "text/event-stream")


Misbehave = Callable[[dict[str, Any]], Response]

TROUBLE: dict[str, tuple[Misbehave, str, str]] = {
    "error status": (
        lambda m: PlainTextResponse("no", 500),
        "PEER_ERROR",
        "/mcp answered 500 Internal Server Error.",
    ),
    "unauthorised": (
        lambda m: PlainTextResponse("no", 401),
        "LOGIN_NEEDED",
        "Run: holdfast servers login web",
    ),
    "refused in words": (
        lambda m: JSONResponse(
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "No."}}, 400
        ),
        "PEER_ERROR",
        "The server answered web.go with an error: No. (-32602)",
    ),
    "accepted": (lambda m: Response(status_code=202), "BAD_ANSWER", "sent an answer without a type. Check"),
    "a page": (
        lambda m: body("<html>", "text/html"),
        "BAD_ANSWER",
        "sent an answer of type 'text/html'. Check",
    ),
    "not JSON": (lambda m: body("{"), "BAD_ANSWER", "The answer cannot be read. The line is not JSON"),
    "a batch": (lambda m: body("[]"), "BAD_ANSWER", "Batches are not supported"),
    "not UTF-8": (lambda m: body(b'{"\xff'), "BAD_ANSWER", "The answer cannot be read."),
    "nothing": (lambda m: body(""), "BAD_ANSWER", "The answer cannot be read. It is empty."),
    "another's answer": (
        lambda m: result_response({"id": 4711}, GOOD),
        "BAD_ANSWER",
        "It is for another request.",
    ),
    "a key twice": (
        lambda m: body(f'{{"jsonrpc":"2.0","id":{m["id"]},"id":{m["id"]},"result":{{}}}}'),
        "BAD_ANSWER",
        "duplicate key",
    ),
    "too large": (lambda m: body(" " * (LIMIT + 1)), "TOO_LARGE", f"more than {LIMIT} bytes"),
    "endless": (
        lambda m: StreamingResponse(endless(b" " * 4096), media_type="application/json"),
        "TOO_LARGE",
        "more",
    ),
    "compressed": (
        lambda m: body(gzip.compress(b" " * 10_000_000), **{"content-encoding": "gzip"}),
        "BAD_ANSWER",
        "compressed its answer",
    ),
    "an endless event": (
        lambda m: StreamingResponse(endless(b"data: " + b"x" * 4096), media_type="text/event-stream"),
        "BAD_ANSWER",
        "cannot be read",
    ),
    "a broken event": (
        lambda m: events(f'{{"jsonrpc":"2.0","id":{m["id"]},"result":{{}},"error":{{}}}}'),
        "BAD_ANSWER",
        "exactly one of",
    ),
    "slow": (
        lambda m: StreamingResponse(drip(), media_type="application/json"),
        "TIMEOUT",
        "within 0.5 s",
    ),
    "pings only": (
        lambda m: StreamingResponse(endless(b": ping\n\n"), media_type="text/event-stream"),
        "TIMEOUT",
        "within 0.5 s",
    ),
    "redirected without end": (lambda m: RedirectResponse("/mcp"), "PEER_ERROR", "redirects too often"),
    "redirected elsewhere": (
        lambda m: RedirectResponse("http://localhost:9/mcp"),
        "PEER_ERROR",
        "redirects to http://localhost:9/mcp, which is not followed.",
    ),
}


@pytest.mark.promise("LNK-13")
@pytest.mark.parametrize("kind", TROUBLE)
async def test_bad_answer_is_a_clear_error_and_the_next_call_succeeds(
    make_host: HostFactory, folder: Path, kind: str
):
    misbehave, code, words = TROUBLE[kind]

    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response | None:
        if b'"tools/call"' not in scripted.requests[-1][2] or scripted.second_phase:
            return None
        return misbehave(message)

    scripted = ScriptedServer(answer)
    limits = Limits(line_bytes=LIMIT)
    async with (
        serve(scripted) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options(limits=limits)) as session,
    ):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        bad = await session.call("web.go", timeout=0.5)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        scripted.second_phase = True
        good = await session.call("web.go")

    assert (bad.code, words in bad.message, bad.message) == (code, True, bad.message)
    assert (good.text, good.state_lost) == ("gone", False)
    assert grown < 32 * 1024


async def test_cancelled_call_disconnects_from_the_server(make_host: HostFactory, folder: Path):
    hung_up = asyncio.Event()

    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response | None:
        if message.get("method") != "tools/call":
            return None
        scripted.called.set()
        async with asyncio.timeout(5):
            while not await request.is_disconnected():
                await asyncio.sleep(0.01)
        hung_up.set()
        return Response()

    scripted = ScriptedServer(answer)
    async with (
        serve(scripted) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options()) as session,
    ):
        call = asyncio.create_task(session.call("web.go"))
        await scripted.called.wait()
        call.cancel()
        await asyncio.wait([call])
        async with asyncio.timeout(5):
            await hung_up.wait()

    assert call.cancelled()


async def test_session_that_the_server_forgot_is_opened_again(make_host: HostFactory, folder: Path):
    known: list[str] = []

    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response:
        match request.method, message.get("method"):
            case "POST", "initialize":
                known.append(f"s{len(known)}")
                result: dict[str, Any] = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "x"},
                }
                response = result_response(message, result)
                response.headers["mcp-session-id"] = known[-1]
                return response
            case "POST", "notifications/initialized":
                return Response(status_code=202)
            case "POST", _ if scripted.second_phase and request.headers.get("mcp-session-id") == "s0":
                # As the reference server from npm says it.
                error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
                return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)
            case "POST", "tools/call" | "tools/list":
                return scripted.default_response(request, message)
            case _:
                return Response(status_code=405)

    scripted = ScriptedServer(answer)
    async with (
        serve(scripted) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options()) as session,
    ):
        first = await session.call("web.go")
        scripted.second_phase = True
        second, third, fourth = [await session.call("web.go") for _ in range(3)]

    assert (first.ok, second.code) == (True, "CONNECTION_CLOSED")
    assert (third.ok, third.state_lost, fourth.state_lost) == (True, True, False)
    assert [
        m for m, headers, _ in scripted.requests if m == "DELETE" and headers["mcp-session-id"] == "s1"
    ] == ["DELETE"]


async def test_stream_that_ended_early_is_resumed_if_the_server_supports_it(
    make_host: HostFactory, folder: Path
):
    asked: dict[str, Any] = {}

    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response | None:
        if message.get("method") == "tools/call":
            asked.update(message)
            return body("id: 7\nretry: 100\ndata:\n\n", "text/event-stream")
        if request.method == "GET" and request.headers.get("last-event-id") == "7":
            text = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": GOOD})
            return body(f"id: 8\ndata: {text}\n\n", "text/event-stream")
        return None

    async with (
        serve(ScriptedServer(answer)) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options()) as session,
    ):
        taken_up = await session.call("web.go")

    assert taken_up.text == "gone"


@pytest.mark.promise("LNK-13")
async def test_flood_of_server_requests_is_answered_a_few_at_a_time(make_host: HostFactory, folder: Path):
    at_once = most = answers = 0

    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response | None:
        nonlocal at_once, most, answers
        if message.get("method") == "tools/call":
            questions = [json.dumps({"jsonrpc": "2.0", "id": f"q{n}", "method": "ping"}) for n in range(500)]
            return events(*questions, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": GOOD}))
        if "method" in message:
            return None
        answers += 1
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return Response(status_code=202)

    limits = Limits(in_flight=8)
    async with (
        serve(ScriptedServer(answer)) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options(limits=limits)) as session,
    ):
        flooded = await session.call("web.go", timeout=20)

    assert (flooded.text, most <= 16, answers >= 480) == ("gone", True, True)


async def test_redirect_within_the_server_is_followed(make_host: HostFactory, folder: Path):
    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response | None:
        return RedirectResponse("/mcp/") if request.url.path == "/mcp" else None

    scripted = ScriptedServer(answer)
    async with (
        serve(scripted) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options()) as session,
    ):
        there = await session.call("web.go")

    assert there.text == "gone"


async def test_sse_server_that_wants_messages_sent_to_another_server_is_refused(
    make_host: HostFactory, folder: Path
):
    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response:
        return body("event: endpoint\ndata: http://localhost:9/take\n\n", "text/event-stream")

    scripted = ScriptedServer(answer)
    async with (
        serve(scripted) as url,
        open_session(make_host, folder, {"web": sse_entry(url)}, connect_options()) as session,
    ):
        reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert [reason.partition("/sse ")[2] for reason in reasons] == [
        "wants messages sent to another server: 'http://localhost:9/take'."
    ]
    assert [method for method, _, _ in scripted.requests] == ["GET"]


async def test_server_that_cannot_be_reached_is_left_out_with_the_reason(
    make_host: HostFactory, folder: Path
):
    async with open_session(
        make_host, folder, {"web": http_entry("http://127.0.0.1:9")}, connect_options()
    ) as session:
        reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert [reason.partition(": ")[:1] for reason in reasons] == [("Could not connect to 'web'",)]
    assert "http://127.0.0.1:9/mcp cannot be reached" in reasons[0]


@pytest.mark.parametrize(
    "host", ["a" * 70 + ".com", "no-such-host.invalid", "a..b", "xn--a.com", "[::ffff:1.2.3.4"]
)
@pytest.mark.parametrize("trust", Trust)
async def test_server_with_an_invalid_host_is_left_out_with_a_reason(
    make_host: HostFactory, folder: Path, caplog: pytest.LogCaptureFixture, host: str, trust: Trust
):
    entry = http_entry(f"http://{host}", trust_level="sandboxed")
    async with (
        make_host({"web": entry}, options=connect_options(connect_seconds=5)) as holder,
        holder.session(cwd=folder, trust=trust) as session,
    ):
        reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert len(reasons) == 1
    assert [record for record in caplog.records if record.exc_info] == []


async def test_hanging_server_does_not_delay_other_servers(make_host: HostFactory, folder: Path):
    hanging = ScriptedServer(hang_after_start)
    async with serve(hanging) as one, serve(ScriptedServer()) as other:
        servers = {"bad": http_entry(one), "good": http_entry(other)}
        async with open_session(make_host, folder, servers, connect_options()) as session:
            stuck = asyncio.create_task(session.call("bad.go", timeout=1.0))
            await hanging.called.wait()
            fine = [(await session.call("good.go")).ok for _ in range(20)]
            stopped = await stuck

    assert (fine, stopped.code) == ([True] * 20, "TIMEOUT")
