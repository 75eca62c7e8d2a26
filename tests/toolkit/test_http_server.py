"""Slow and silent clients are disconnected; other clients do not wait for them."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from holdfast.toolkit.http_server import ConnectionLimits, bind, serve_app

pytestmark = pytest.mark.anyio

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
HEAD_SECONDS = 0.3


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, wait as long as the path says, answer `ok`."""
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    if scope["path"] == "/slow":
        await asyncio.sleep(HEAD_SECONDS * 2)
    headers = [(b"content-length", b"2")]
    if scope["path"] == "/json":
        headers = [(b"content-type", b"application/json"), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})
    if scope["path"] == "/lingering":
        await asyncio.sleep(HEAD_SECONDS / 3)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    sock = bind("127.0.0.1", 0)
    async with serve_app(application, sock, ConnectionLimits(head_seconds=HEAD_SECONDS)):
        yield sock.getsockname()[1]


async def exchange(port: int, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send the pieces; return the first bytes that the server sends, or none if it disconnects."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause)
        async with asyncio.timeout(5):
            return await reader.read(1000)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_idle_connection_is_kept_after_a_response(port: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(REQUEST + b"\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(HEAD_SECONDS + 0.05)
    writer.close()


async def test_slow_response_is_not_cut_off(port: int):
    assert (await exchange(port, b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(
        b"HTTP/1.1 200"
    )


async def test_slow_body_is_not_cut_off(port: int):
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"

    assert (await exchange(port, head, b"a", b"b", pause=HEAD_SECONDS)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"G",),
        (REQUEST,),
        (REQUEST, *[b"X: y\r\n"] * 20),
    ],
    ids=["silent", "one byte", "no end", "drop by drop"],
)
async def test_client_that_does_not_finish_its_head_is_disconnected(port: int, pieces: tuple[bytes, ...]):
    began = time.monotonic()

    assert await exchange(port, *pieces, pause=0.03) == b""
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("path", "rest"),
    [(b"/", REQUEST), (b"/", b"\r\n"), (b"/slow", b"X: y\r\n"), (b"/lingering", REQUEST)],
    ids=["after the response", "only a line break", "with the first request", "while the application runs"],
)
async def test_second_head_on_a_connection_has_a_deadline_too(port: int, path: bytes, rest: bytes):
    first = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first + REQUEST if path == b"/slow" else first)
    await reader.readuntil(b"ok")
    began = time.monotonic()

    writer.write(rest)
    async with asyncio.timeout(5):
        end = await asyncio.gather(reader.read(), return_exceptions=True)
    writer.close()

    assert end == [b""] or isinstance(end[0], ConnectionError)
    assert time.monotonic() - began < 4  # uvicorn's own limit for an idle connection is 5 s


@pytest.mark.parametrize(
    ("start", "connection", "body"),
    [
        (b"GET /json HTTP/1.1", b"", b"ok"),
        (b"GET /json HTTP/1.0", b"close", b"ok"),
        (b"HEAD /json HTTP/1.1", b"", b""),
    ],
)
async def test_json_response_is_complete(port: int, start: bytes, connection: bytes, body: bytes):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2 if not connection else 1):  # the connection can be used again
        writer.write(start + b"\r\nHost: localhost\r\n\r\n")
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = dict(line.split(b": ") for line in lines if line)

        assert (status, await reader.readexactly(len(body))) == (b"HTTP/1.1 200 OK", body)
        assert headers.pop(b"date")
        assert headers.pop(b"connection", b"") == connection
        assert headers == {b"content-type": b"application/json", b"content-length": b"2"}
    writer.close()


async def fail_after_head(scope: Any, receive: Any, send: Any) -> None:
    """Send the head of a JSON response, and then fail as the path says."""
    body = b"" if scope["path"].startswith("/empty") else b"{}"
    head = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
    }
    await send(head)
    match scope["path"].rpartition("/")[2]:
        case "raise":
            raise ValueError("a bug")
        case "return":
            return
        case "cancel":
            raise asyncio.CancelledError
        case "head-again":
            await send(head)
        case _:
            await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("kind", ["full", "empty"])
@pytest.mark.parametrize("failure", ["raise", "return", "cancel", "head-again"])
async def test_failure_after_the_head_of_a_json_response_is_a_500(kind: str, failure: str):
    sock = bind("127.0.0.1", 0)
    async with serve_app(fail_after_head, sock), httpx.AsyncClient(timeout=5) as client:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/{kind}"
        responses = [await client.get(f"{url}/{path}") for path in (failure, "succeed")]

        assert [response.status_code for response in responses] == [500, 200]


async def test_client_that_sends_too_large_a_head_is_disconnected(port: int):
    assert await exchange(port, REQUEST, *[b"X: " + b"y" * 60_000 + b"\r\n"] * 10) == b""


async def test_three_hundred_slow_clients_do_not_delay_others_and_are_disconnected(port: int):
    slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
    for _, writer in slow:
        writer.write(REQUEST)

    began = time.monotonic()
    quick = await exchange(port, REQUEST + b"\r\n")
    took = time.monotonic() - began
    async with asyncio.timeout(5):
        left = await asyncio.gather(*(reader.read(1) for reader, _ in slow), return_exceptions=True)
    for _, writer in slow:
        writer.close()

    assert quick.startswith(b"HTTP/1.1 200")
    assert took < 1
    assert all(isinstance(end, ConnectionError) or end == b"" for end in left)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
async def test_client_that_is_disconnected_for_its_pipelined_requests_is_no_error(
    anyio_backend: object, caplog: pytest.LogCaptureFixture
):
    leave, ended = asyncio.Event(), asyncio.Event()
    requests = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal requests
        requests += 1
        await leave.wait()
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")],
                }
            )
            await send({"type": "http.response.body", "body": b"{}"})
        finally:
            ended.set()

    listening = bind("127.0.0.1", 0)
    async with asyncio.timeout(60), serve_app(app, listening):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
        assert await reader.read() == b""
        assert requests == 1
        writer.close()
        leave.set()
        await ended.wait()

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
