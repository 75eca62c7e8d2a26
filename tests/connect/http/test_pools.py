"""The HTTP client against raw sockets: what it accepts as a response, which connections it reuses, what it leaks."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.connect.http import response_limits
from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.connect.http.pools import Pool
from holdfast.connect.http.response import BrokenResponseError, UnreachableError
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from tests.connect.http.raw import (
    CHUNKED,
    HEAD,
    RawServer,
    Talk,
    answer_and_close,
    fetch,
    make_certificate,
    resolve_to,
    run_server,
    send,
    serve_answers,
    sized_response,
)

pytestmark = pytest.mark.anyio

TLS = ssl.create_default_context()
ANYWHERE = AddressPolicy(public_only=False)


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run each test on both event loops that a host may use."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def make_pool(*addresses: str, tls: ssl.SSLContext = TLS) -> Pool:
    return Pool(ANYWHERE, tls, look_up=resolve_to(*addresses))


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = make_pool("127.0.0.1")
    try:
        yield pool
    finally:
        await pool.close()


# Reusing a connection


async def test_connection_is_reused(pool: Pool):
    async with serve_answers(
        sized_response(b"one", b"Keep-Alive: timeout=5"),
        CHUNKED + b"3\r\ntwo\r\n0\r\n\r\n",
        sized_response(b"three"),
    ) as server:
        answers = [await fetch(pool, server.url) for _ in range(3)]

    assert (answers, server.request_connections) == ([b"one", b"two", b"three"], [1, 1, 1])


NOT_REUSED: dict[str, bytes | Talk] = {
    "Connection: close": sized_response(b"one", b"Connection: close"),
    "close among other options": sized_response(b"one", b"Connection: x, Close"),
    "a short Keep-Alive": sized_response(b"one", b"Keep-Alive: timeout=1, max=5"),
    "HTTP/1.0": sized_response(b"one", version=b"1.0"),
    "closed": answer_and_close(sized_response(b"one")),
    "ended by closing": answer_and_close(HEAD + b"\r\none"),
    "a whole answer more": sized_response(b"one") + sized_response(b"evil"),
    "a part of an answer more": sized_response(b"one") + HEAD + b"Content-Length: 9\r\n\r\nev",
    "a byte more": sized_response(b"one") + b"H",
    "a hint more": sized_response(b"one") + b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n",
}


@pytest.mark.parametrize("kind", NOT_REUSED)
async def test_connection_that_is_not_clean_is_not_reused(pool: Pool, kind: str):
    async with serve_answers(NOT_REUSED[kind], sized_response(b"two")) as server:
        answers = [await fetch(pool, server.url) for _ in range(2)]

    assert (answers, server.request_connections) == ([b"one", b"two"], [1, 2])


GARBAGE = {
    "garbage": sized_response(b"one") + b"\0\0\0",
    "a second body": CHUNKED + b"3\r\none\r\n0\r\n\r\n5\r\nevil!\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_response_followed_by_garbage_fails_and_the_next_request_gets_a_new_connection(
    pool: Pool, kind: str
):
    async with serve_answers(GARBAGE[kind], sized_response(b"two")) as server:
        with pytest.raises(BrokenResponseError, match="not HTTP"):
            await fetch(pool, server.url)
        second = await fetch(pool, server.url)

    assert (second, server.request_connections) == (b"two", [1, 2])


@pytest.mark.parametrize("kind", [*GARBAGE, "a whole answer more"])
async def test_bytes_after_a_body_that_is_being_read_do_not_reach_the_next_request(pool: Pool, kind: str):
    text = GARBAGE.get(kind, sized_response(b"one") + sized_response(b"evil"))
    head = text.index(b"\r\n\r\n") + 4
    begun = asyncio.Event()

    async def in_two_parts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text[:head])
        await begun.wait()
        writer.write(text[head:])

    async with serve_answers(in_two_parts, sized_response(b"two")) as server:
        response = await send(pool, server.url)
        begun.set()
        first = await response.read(100)
        response.close()
        second = await fetch(pool, server.url)

    assert (first, second, server.request_connections) == (b"one", b"two", [1, 2])


async def test_bytes_after_a_response_do_not_change_it(pool: Pool):
    more = b"HTTP/1.1 100 Continue\r\nX: evil\r\nSet-Cookie: evil=1\r\n\r\n"
    async with serve_answers(sized_response(b"one", b"Set-Cookie: a=1", b"X: y") + more) as server:
        response = await send(pool, server.url)
        body = await response.read(100)
        response.close()

    assert (response.status, response.reason, response.headers["x"], response.set_cookies, body) == (
        *(200, "OK", "y"),
        *(["a=1"], b"one"),
    )


@pytest.mark.parametrize("noticed", ["by the event loop", "right before the request"])
@pytest.mark.parametrize("sent", [sized_response(b"evil"), b""], ids=["an answer", "the end"])
async def test_idle_connection_on_which_the_server_sends_or_closes_is_not_reused(
    pool: Pool, sent: bytes, noticed: str
):
    """A POST must not fail because the server closed the idle connection a moment ago."""
    now, done = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sized_response(b"one"))
        await now.wait()
        writer.write(sent)
        if not sent:
            writer.write_eof()
        done.set()

    async with serve_answers(talk, sized_response(b"two")) as server:
        first = await fetch(pool, server.url)
        now.set()
        await (server.client_gone if noticed == "by the event loop" else done).wait()
        second = await fetch(pool, server.url, "POST", body=b"{}")

    assert (first, second, server.request_connections) == (b"one", b"two", [1, 2])


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("connection", ["new", "reused"])
async def test_request_that_the_server_dropped_is_not_sent_again(pool: Pool, method: str, connection: str):
    """The server may have executed the request, and the token of a request is valid only once."""

    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    answers = [drop, sized_response(b"evil")]
    async with serve_answers(
        *([sized_response(b"one")] if connection == "reused" else []), *answers
    ) as server:
        if connection == "reused":
            await fetch(pool, server.url)
        with pytest.raises(BrokenResponseError, match="closed the connection"):
            await fetch(pool, server.url, method, body=b"{}" if method == "POST" else None)

    assert server.request_connections == ([1, 1] if connection == "reused" else [1])


@pytest.mark.parametrize("size", [50_000_000, 6_000_000])
async def test_connection_is_not_reused_if_the_server_did_not_read_the_whole_request(pool: Pool, size: int):
    async def answer_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sized_response(b"one"))
        await server.client_gone.wait()

    async with serve_answers(answer_only, sized_response(b"two")) as server:
        response = await send(pool, server.url, "POST", body=bytes(size))
        first = await response.read(100)
        response.close()
        second = await fetch(pool, server.url)
        server.client_gone.set()

    assert (first, second, server.request_connections) == (b"one", b"two", [1, 2])


async def test_concurrent_requests_use_separate_connections(pool: Pool):
    async with serve_answers(*[sized_response(b"x")] * 6) as server:
        await asyncio.gather(*(fetch(pool, server.url) for _ in range(5)))
        await fetch(pool, server.url)

    assert (server.connections, sorted(server.request_connections[:5])) == (5, [1, 2, 3, 4, 5])


async def test_idle_connection_is_not_reused_for_another_origin(pool: Pool):
    async with serve_answers(sized_response(b"one"), sized_response(b"two")) as server:
        other = server.url.with_host("elsewhere")
        answers = [await fetch(pool, server.url), await fetch(pool, other)]

    assert (answers, server.request_connections) == ([b"one", b"two"], [1, 2])


async def test_number_of_idle_connections_is_limited(pool: Pool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(response_limits, "MAX_IDLE", 3)
    async with serve_answers(*[sized_response(b"x")] * 8) as server:
        await asyncio.gather(*(fetch(pool, server.url) for _ in range(4)))
        await server.client_gone.wait()
        await asyncio.gather(*(fetch(pool, server.url) for _ in range(3)))

    assert server.connections == 4


async def test_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(response_limits, "IDLE_SECONDS", 0.02)
    pool = make_pool("127.0.0.1")
    async with serve_answers(sized_response(b"x")) as server, asyncio.timeout(10):
        await fetch(pool, server.url)
        await server.client_gone.wait()
    await pool.close()

    assert server.connections == 1


async def test_closed_pool_keeps_no_connection(pool: Pool):
    async with serve_answers(sized_response(b"one")) as server:
        response = await send(pool, server.url)
        await pool.close()
        body = await response.read(100)
        response.close()
        await server.client_gone.wait()

    assert body == b"one"


# Valid and broken responses


async def test_interim_responses_are_skipped(pool: Pool):
    hints = b"HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nHTTP/1.1 103 Early\r\nSet-Cookie: no=1\r\nA: b\r\n\r\n"
    async with serve_answers(hints + sized_response(b"one", b"C: d"), sized_response(b"two")) as server:
        response = await send(pool, server.url)
        first = await response.read(100)
        response.close()
        second = await fetch(pool, server.url)

    assert (response.status, response.reason, response.set_cookies) == (200, "OK", [])
    assert (dict(response.headers), first) == ({"Content-Length": "3", "C": "d"}, b"one")
    assert (second, server.request_connections) == (b"two", [1, 1])


async def test_headers_are_read_by_name_and_cookies_one_by_one(pool: Pool):
    lines = (b"X-A:  b ", b"x-a: c", b"Set-Cookie: a=1", b"set-cookie: b=2", b"Content-Type: Text/Plain; a=b")
    async with serve_answers(sized_response(b"", *lines).replace(b"OK", "\x1b[31mAll é".encode())) as server:
        response = await send(pool, server.url)
        response.close()

    assert (response.headers["x-a"], response.set_cookies, response.media_type) == (
        "b",
        ["a=1", "b=2"],
        "text/plain",
    )
    assert (response.reason, response.is_success) == ("[31mAll é", True)


WHOLE = {
    "sized": sized_response(b"hello world"),
    "in chunks": CHUNKED + b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX: evil\r\nSet-Cookie: a=b\r\n\r\n",
    "up to the end": HEAD + b"A: b\r\n\r\nhello world",
}


@pytest.mark.parametrize("kind", WHOLE)
async def test_response_may_arrive_byte_by_byte(pool: Pool, kind: str):
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in WHOLE[kind]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        writer.write_eof()

    async with serve_answers(drip) as server:
        response = await send(pool, server.url)
        body = await response.read(100)
        response.close()

    assert (body, "x" in response.headers, response.set_cookies) == (b"hello world", False, [])


@pytest.mark.parametrize("kind", WHOLE)
async def test_response_is_the_same_wherever_it_is_split(pool: Pool, kind: str):
    text = WHOLE[kind]

    def split_at(cut: int) -> Talk:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(text[:cut])
            await asyncio.sleep(0.001)
            writer.write(text[cut:])
            writer.write_eof()

        return talk

    cuts = range(1, len(text))
    async with serve_answers(*map(split_at, cuts)) as server:
        bodies = {await fetch(pool, server.url) for _ in cuts}

    assert bodies == {b"hello world"}


@pytest.mark.parametrize("kind", WHOLE)
async def test_response_that_ends_early_is_an_error(pool: Pool, kind: str):
    text = WHOLE[kind]
    head = text.index(b"\r\n\r\n") + 4

    async def read() -> bytes | str:
        try:
            return await fetch(pool, server.url)
        except BrokenResponseError:
            return "broken"

    cuts = range(1, len(text))
    async with serve_answers(*(answer_and_close(text[:cut]) for cut in cuts)) as server:
        halves = [await read() for _ in cuts]

    assert set(halves[: head - 1]) == {"broken"}
    assert set(halves[head - 1 :]) == (
        {b"hello world"[:cut] for cut in range(11)} if kind == "up to the end" else {"broken"}
    )


BROKEN = {
    "a length twice": (HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\none", "not HTTP"),
    "two lengths": (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\none", "not HTTP"),
    "a list of lengths": (HEAD + b"Content-Length: 3, 3\r\n\r\none", "not HTTP"),
    "a length below zero": (HEAD + b"Content-Length: -3\r\n\r\none", "not HTTP"),
    "a length beyond reason": (HEAD + b"Content-Length: 99999999999999999999\r\n\r\none", "not HTTP"),
    "length and chunks": (HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "not HTTP"),
    "chunks and length": (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "not HTTP"),
    "another encoding": (HEAD + b"Transfer-Encoding: gzip\r\n\r\none", "transfer encoding"),
    "a chunk beyond reason": (CHUNKED + b"fffffffffffffffff\r\n", "not HTTP"),
    "a chunk below zero": (CHUNKED + b"-3\r\none\r\n", "not HTTP"),
    "a chunk that is longer": (CHUNKED + b"3\r\nonemore\r\n0\r\n\r\n", "not HTTP"),
    "cut short": (HEAD + b"Content-Length: 4\r\n\r\none", "ended too early|closed the connection|not HTTP"),
    "cut short between chunks": (CHUNKED + b"3\r\none\r\n", "ended too early|closed the connection|not HTTP"),
    "cut short in a head": (HEAD + b"Content-Len", "ended too early|closed the connection|not HTTP"),
    "nothing": (b"", "ended too early|closed the connection|not HTTP"),
    "only a hint": (b"HTTP/1.1 100 Continue\r\n\r\n", "ended too early|closed the connection|not HTTP"),
    "another protocol": (
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + sized_response(b"one"),
        "switch protocols",
    ),
    "another protocol, unnamed": (
        b"HTTP/1.1 101 Switching\r\n\r\n" + sized_response(b"one"),
        "switch protocols",
    ),
    "a status that is none": (
        b"HTTP/1.1 000 No\r\nContent-Length: 4\r\n\r\nevil" + sized_response(b"one"),
        "status 0",
    ),
    "a header without a name": (HEAD + b": b\r\n\r\n", "not HTTP"),
    "a NUL": (HEAD + b"A: b\0c\r\n\r\n", "not HTTP"),
    "another program": (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
    "TLS": (b"\x15\x03\x01\x00\x02\x02\x46", "not HTTP"),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_broken_response_is_an_error_and_the_next_request_succeeds(pool: Pool, kind: str):
    bad, why = BROKEN[kind]
    async with serve_answers(answer_and_close(bad), sized_response(b"two")) as server:
        with pytest.raises(BrokenResponseError, match=why):
            await fetch(pool, server.url)
        second = await fetch(pool, server.url)

    assert (second, server.request_connections) == (b"two", [1, 2])


async def test_reset_connection_is_not_the_end_of_a_body(pool: Pool):
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\nhalf")
        await asked.wait()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    asked = asyncio.Event()
    async with serve_answers(reset) as server:
        response = await send(pool, server.url)
        half = await response.read_chunk()
        asked.set()
        with pytest.raises(BrokenResponseError):
            await response.read_chunk()
        response.close()

    assert half == b"half"


LENIENT = {
    "a folded header": HEAD + b"A: b\r\n c\r\nContent-Length: 3\r\n\r\none",
    "line ends without a carriage return": b"HTTP/1.1 200 OK\nContent-Length: 3\n\none",
}


@pytest.mark.parametrize("kind", LENIENT)
async def test_obsolete_syntax_of_a_head_is_accepted(pool: Pool, kind: str):
    """RFC 9112 lets a recipient accept both."""
    async with serve_answers(LENIENT[kind], sized_response(b"two")) as server:
        answers = [await fetch(pool, server.url) for _ in range(2)]

    assert answers == [b"one", b"two"]


ENDLESS = {
    "a header": (HEAD + b"A: ", b"x" * 4096),
    "the name of a header": (HEAD, b"x" * 4096),
    "headers": (HEAD, b"A: b\r\n" * 512),
    "empty headers": (HEAD, b"A:\r\n" * 60_000),
    "hints": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100),
    "a reason": (b"HTTP/1.1 200 ", b"x" * 4096),
    "a header behind the body": (CHUNKED + b"3\r\none\r\n0\r\nA: ", b"x" * 4096),
    "an extension of a chunk": (CHUNKED + b"3;a=", b"x" * 4096),
}


@pytest.mark.promise("LNK-13")
@pytest.mark.parametrize("kind", ENDLESS)
async def test_server_that_sends_endless_bytes_outside_a_body_is_disconnected(pool: Pool, kind: str):
    begin, more = ENDLESS[kind]
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(begin)
        while True:
            writer.write(more)
            sent += len(more)
            await writer.drain()

    async with serve_answers(endless) as server:
        with pytest.raises(BrokenResponseError, match=r"too long|not HTTP"):
            await fetch(pool, server.url)
        await server.client_gone.wait()

    assert sent < 20_000_000


BROKEN_BEHIND_THE_HEAD = {
    "an endless header behind the body": (b"3\r\none\r\n0\r\nA: ", b"x" * 200_000),
    "an endless extension of a chunk": (b"3;a=", b"x" * 200_000),
    "a chunk without a size": (b"3\r\none\r\n", b"many\r\n"),
    "a chunk that is longer than its size": (b"3\r\n", b"one and more\r\n"),
    "a line behind the body that is no header": (b"3\r\none\r\n0\r\n", b"\x00\r\n\r\n"),
}


@pytest.mark.promise("LNK-13")
@pytest.mark.parametrize("kind", BROKEN_BEHIND_THE_HEAD)
async def test_reader_of_a_body_is_told_that_it_is_broken(pool: Pool, kind: str):
    """The reader is already waiting when the broken bytes arrive."""
    begin, broken = BROKEN_BEHIND_THE_HEAD[kind]
    is_reading = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + begin)
        await is_reading.wait()
        writer.write(broken)

    async with serve_answers(talk) as server:
        response = await send(pool, server.url)
        reading = asyncio.create_task(response.read(10_000_000))
        await asyncio.sleep(0.01)
        is_reading.set()
        with pytest.raises(BrokenResponseError):
            await reading
        response.close()


# Reading


@pytest.mark.promise("LNK-13")
async def test_server_waits_while_the_body_is_not_read(pool: Pool):
    size, sent, done = 100_000_000, 0, asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(bytes(500_000))
            sent += 500_000
            await writer.drain()
        done.set()

    async with serve_answers(flood, sized_response(b"two")) as server:
        response = await send(pool, server.url)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await done.wait()
        waiting, first = sent, len(await response.read_chunk())
        read = first
        while part := await response.read_chunk():
            read += len(part)
        response.close()
        second = await fetch(pool, server.url)

    assert (first < 1_000_000, waiting < 30_000_000, read) == (True, True, size)
    assert (second, server.request_connections) == (b"two", [1, 1])


async def test_body_that_is_too_long_is_an_error_and_the_server_is_disconnected(pool: Pool):
    async with serve_answers(HEAD + b"Content-Length: 1000\r\n\r\n" + bytes(900)) as server:
        response = await send(pool, server.url)
        with pytest.raises(HoldfastError, match="more than 800 bytes") as error:
            await response.read(800)
        response.close()
        await server.client_gone.wait()

    assert error.value.code is codes.TOO_LARGE


async def test_closing_a_response_early_disconnects_and_fails_the_reader(pool: Pool):
    async with serve_answers(CHUNKED + b"3\r\none\r\n", sized_response(b"two")) as server:
        response = await send(pool, server.url)
        part = await response.read_chunk()
        reading = asyncio.create_task(response.read_chunk())
        await asyncio.sleep(0)
        response.close()
        response.close()
        await server.client_gone.wait()
        with pytest.raises(BrokenResponseError, match="closed the connection"):
            await reading
        second = await fetch(pool, server.url)

    assert (part, second, server.request_connections) == (b"one", b"two", [1, 2])


# Connecting


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def unresponsive_address(address: str, port: int) -> AsyncIterator[None]:
    """Listen on an address where connecting never finishes, because its queue is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind((address, port))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex((address, port))
        yield


async def test_first_address_that_accepts_is_used():
    async with (
        serve_answers(sized_response(b"one"), sized_response(b"two")) as server,
        unresponsive_address("127.0.0.2", server.port),
    ):
        before = open_files()
        for number, first in enumerate(("127.0.0.3", "127.0.0.2")):
            pool = make_pool(first, first, "127.0.0.1")
            assert await fetch(pool, server.url) == (b"one", b"two")[number]
            await pool.close()
        await server.client_gone.wait()
        async with asyncio.timeout(5):
            while open_files() > before:
                await asyncio.sleep(0.01)

    assert server.request_connections == [1, 2]


async def test_error_says_why_no_address_accepts():
    async with serve_answers() as server:
        refusing = make_pool("127.0.0.3", "127.0.0.4")
        nowhere = make_pool()
        with pytest.raises(UnreachableError, match=r"^Connection refused$"):
            await fetch(refusing, server.url)
        with pytest.raises(UnreachableError, match="it has no address"):
            await fetch(nowhere, server.url)
        await refusing.close()
        await nowhere.close()

    assert server.connections == 0


@pytest.mark.parametrize("addresses", [("127.0.0.2",), ("127.0.0.2", "127.0.0.2")])
@pytest.mark.parametrize("ends", ["in time", "cancelled"])
async def test_request_that_fails_while_connecting_leaks_nothing(addresses: tuple[str, ...], ends: str):
    async with serve_answers() as server, unresponsive_address("127.0.0.2", server.port):
        before, tasks = open_files(), len(asyncio.all_tasks())
        pool = make_pool(*addresses)
        request = asyncio.create_task(
            send(pool, server.url, connect_seconds=0.05 if ends == "in time" else 5)
        )
        if ends == "cancelled":
            async with asyncio.timeout(5):
                while open_files() == before:
                    await asyncio.sleep(0.001)
            request.cancel()
        await asyncio.wait([request])
        async with asyncio.timeout(5):
            while open_files() > before or len(asyncio.all_tasks()) > tasks:
                await asyncio.sleep(0.001)
        await pool.close()

    assert request.cancelled() if ends == "cancelled" else isinstance(request.exception(), UnreachableError)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_cancelled_request_is_disconnected(pool: Pool, scheme: str):
    begun_waiting = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)  # for https this is the handshake, which is not answered
        begun_waiting.set()

    server = RawServer()
    async with run_server(wait, server):
        url = server.url.with_scheme(scheme)
        request = asyncio.create_task(send(pool, url))
        await begun_waiting.wait()
        request.cancel()
        await asyncio.wait([request])
        await server.client_gone.wait()

    assert request.cancelled()


@pytest.mark.parametrize("name", ["there", "there.", "elsewhere"])
async def test_certificate_must_be_for_the_name(tmp_path: Path, name: str):
    files = make_certificate(tmp_path, "there")
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(files["ssl_certfile"], files["ssl_keyfile"])
    pool = make_pool("127.0.0.1", tls=ssl.create_default_context(cafile=files["ssl_certfile"]))
    async with (
        serve_answers(sized_response(b"one"), sized_response(b"two"), ssl=ours) as server,
        asyncio.timeout(10),
    ):
        url = server.url.with_host(name)
        if name == "elsewhere":
            with pytest.raises(UnreachableError, match="its certificate is not valid"):
                await fetch(pool, url)
            answers: list[bytes] = []
        else:
            answers = [await fetch(pool, url), await fetch(pool, url)]
            await pool.close()
            await server.client_gone.wait()
        await pool.close()

    assert (answers, server.request_connections) == (
        ([], []) if name == "elsewhere" else ([b"one", b"two"], [1, 1])
    )


# Sending


async def test_request_has_no_header_that_was_not_given(pool: Pool):
    async with serve_answers(
        sized_response(b"one"), sized_response(b"two"), sized_response(b"three")
    ) as server:
        await fetch(pool, server.url / "a" % {"b": "c"}, "POST", headers={"x": "ü"}, body=b"")
        await fetch(pool, server.url)
        await fetch(pool, server.url, "DELETE", headers={"accept": "a/b"})

    host = b"Host: there:%d\r\nAccept-Encoding: identity\r\n" % server.port
    assert server.heads == [
        b"POST /a?b=c HTTP/1.1\r\n" + host + "x: ü\r\n".encode() + b"Content-Length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + host + b"\r\n",
        b"DELETE / HTTP/1.1\r\n" + host + b"accept: a/b\r\nContent-Length: 0\r\n\r\n",
    ]


async def test_body_is_sent_as_it_is(pool: Pool):
    body, received = bytes(range(256)) * 1000, b""

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        received = await reader.readexactly(len(body))
        writer.write(sized_response(b"one"))

    async with serve_answers(read) as server:
        await fetch(pool, server.url, "POST", body=body)

    assert (received == body, b"Content-Length: 256000\r\n" in server.heads[0]) == (True, True)


@pytest.mark.parametrize(
    "headers",
    [{"a": "b\r\nc: d"}, {"a": "b\nc"}, {"a": "b\rc"}, {"a": "b\0c"}, {"a\r\nb": "c"}, {"a": "\ud800"}],
    ids=ascii,
)
async def test_header_with_invalid_characters_is_refused(pool: Pool, headers: dict[str, str]):
    async with serve_answers(sized_response(b"one")) as server:
        with pytest.raises(HoldfastError) as error:
            await fetch(pool, server.url, "POST", headers=headers, body=b"{}")

    assert (error.value.code, server.heads) == (codes.BAD_ARGUMENT, [])
