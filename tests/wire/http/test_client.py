"""The asking side of HTTP/1.1, against raw sockets: what is taken as an answer, what is used again, what is left."""

import asyncio
import gc
import os
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http import client
from holdfast.wire.http.client import Find, Pool, Unreachable, written
from holdfast.wire.http.exchange import BrokenOff, Connection, Reply
from holdfast.wire.http.url import Url
from tests.connect.test_http_egress import certificate

pytestmark = pytest.mark.anyio

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TLS = ssl.create_default_context()


def sized(body: bytes, *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = (b"HTTP/%b 200 OK" % version, b"Content-Length: %d" % len(body), *headers)
    return b"\r\n".join((*lines, b"", body))


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """A host may run on either."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@dataclass
class Server:
    """Where to ask, and which of its connections each request came on."""

    url: Url = field(default_factory=lambda: Url("http", "there", 1, "/"))
    asked: list[int] = field(default_factory=list[int])
    came: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has hung up."""


@asynccontextmanager
async def listening(talk: Talk, server: Server, **options: Any) -> AsyncIterator[None]:
    """Whoever connects is talked to; at the end every connection is cut."""
    async with AsyncExitStack() as stack:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server.came += 1
            stack.callback(writer.transport.abort)
            try:
                await talk(reader, writer)
                while await reader.read(65536):
                    pass
            except (OSError, asyncio.IncompleteReadError):
                pass  # as good as an end
            finally:
                server.gone.set()
                writer.transport.abort()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
        stack.callback(listener.close)
        scheme = "https" if "ssl" in options else "http"
        server.url = Url(scheme, "there", listener.sockets[0].getsockname()[1], "/")
        yield


async def heard(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


@asynccontextmanager
async def answering(*answers: bytes | Talk, **options: Any) -> AsyncIterator[Server]:
    """One answer after the other, whichever connection is asked; a connection ends with what is no keep-alive."""
    left, server = list(answers), Server()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = server.came
        while left:
            await heard(reader)
            server.asked.append(number)
            answer = left.pop(0)
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(reader, writer)

    async with listening(talk, server, **options):
        yield server


def then_closed(answer: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    return talk


def at(*addresses: str) -> Find:
    async def find(host: str, port: int) -> list[str]:
        return [*addresses]

    return find


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool(at("127.0.0.1"), TLS)
    async with asyncio.timeout(10):
        yield pool
    await pool.close()


async def begun(pool: Pool, url: Url, seconds: float = 5.0) -> Reply:
    return await pool.ask(url, written("GET", url, {}, None), seconds=seconds)


async def got(pool: Pool, url: Url) -> bytes:
    reply = await begun(pool, url)
    try:
        return await reply.read(10_000_000)
    finally:
        reply.close()


# One connection for the next request, or a new one


async def test_a_connection_is_used_again(pool: Pool):
    async with answering(
        sized(b"one", b"Keep-Alive: timeout=5"), CHUNKED + b"3\r\ntwo\r\n0\r\n\r\n", sized(b"three")
    ) as server:
        answers = [await got(pool, server.url) for _ in range(3)]

    assert (answers, server.asked) == ([b"one", b"two", b"three"], [1, 1, 1])


NOT_AGAIN: dict[str, bytes | Talk] = {
    "told to close": sized(b"one", b"Connection: close"),
    "told to close among other things": sized(b"one", b"Connection: x, Close"),
    "kept for a moment only": sized(b"one", b"Keep-Alive: timeout=1, max=5"),
    "HTTP/1.0": sized(b"one", version=b"1.0"),
    "closed": then_closed(sized(b"one")),
    "ended by closing": then_closed(HEAD + b"\r\none"),
    "a whole answer more": sized(b"one") + sized(b"evil"),
    "a part of an answer more": sized(b"one") + HEAD + b"Content-Length: 9\r\n\r\nev",
    "a byte more": sized(b"one") + b"H",
    "a hint more": sized(b"one") + b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n",
    "garbage more": sized(b"one") + b"\0\0\0",
    "a body too many": CHUNKED + b"3\r\none\r\n0\r\n\r\n5\r\nevil!\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("kind", NOT_AGAIN)
async def test_a_connection_that_is_not_clean_is_not_used_again(pool: Pool, kind: str):
    async with answering(NOT_AGAIN[kind], sized(b"two")) as server:
        answers = [await got(pool, server.url) for _ in range(2)]

    assert (answers, server.asked) == ([b"one", b"two"], [1, 2])


async def test_what_comes_behind_an_answer_changes_nothing_of_it(pool: Pool):
    more = b"HTTP/1.1 100 Continue\r\nX: evil\r\nSet-Cookie: evil=1\r\n\r\n"
    async with answering(sized(b"one", b"Set-Cookie: a=1", b"X: y") + more) as server:
        reply = await begun(pool, server.url)
        body = await reply.read(100)
        reply.close()

    assert (reply.status, reply.reason, reply.headers["x"], reply.cookies, body) == (
        *(200, "OK", "y"),
        *(["a=1"], b"one"),
    )


@pytest.mark.parametrize("noticed", ["by the loop", "at the last moment"])
@pytest.mark.parametrize("sent", [sized(b"evil"), b""], ids=["an answer", "the end"])
async def test_a_server_that_does_something_unasked_is_not_asked_again_there(
    pool: Pool, sent: bytes, noticed: str
):
    now, done = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sized(b"one"))
        await now.wait()
        writer.write(sent)
        if not sent:
            writer.write_eof()
        done.set()

    async with answering(talk, sized(b"two")) as server:
        first = await got(pool, server.url)
        now.set()
        await (server.gone if noticed == "by the loop" else done).wait()
        second = await got(pool, server.url)

    assert (first, second, server.asked) == (b"one", b"two", [1, 2])


async def test_a_server_that_did_not_read_the_whole_request_is_not_asked_again_there(pool: Pool):
    async def answer_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sized(b"one"))
        await server.gone.wait()

    async with answering(answer_only, sized(b"two")) as server:
        body = bytes(50_000_000)
        reply = await pool.ask(server.url, written("POST", server.url, {}, body), seconds=5)
        first = await reply.read(100)
        reply.close()
        second = await got(pool, server.url)
        server.gone.set()

    assert (first, second, server.asked) == (b"one", b"two", [1, 2])


async def test_requests_at_once_have_a_connection_each(pool: Pool):
    async with answering(*[sized(b"x")] * 6) as server:
        await asyncio.gather(*(got(pool, server.url) for _ in range(5)))
        await got(pool, server.url)

    assert (server.came, sorted(server.asked[:5])) == (5, [1, 2, 3, 4, 5])


async def test_another_origin_never_gets_a_connection_that_is_free(pool: Pool):
    async with answering(sized(b"one"), sized(b"two")) as server:
        other = Url("http", "elsewhere", server.url.port, "/")
        answers = [await got(pool, server.url), await got(pool, other)]

    assert (answers, server.asked) == ([b"one", b"two"], [1, 2])


async def test_free_connections_are_few_and_not_kept_for_long(pool: Pool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "_KEPT", 3)
    async with answering(*[sized(b"x")] * 8) as server:
        await asyncio.gather(*(got(pool, server.url) for _ in range(4)))
        await server.gone.wait()
        await asyncio.gather(*(got(pool, server.url) for _ in range(3)))
        few = server.came
        monkeypatch.setattr(client, "_KEPT_SECONDS", 0.02)
        await pool.close()

        swept = Pool(at("127.0.0.1"), TLS)
        server.gone.clear()
        await got(swept, server.url)
        await server.gone.wait()
        await swept.close()

    assert (client._KEPT, few) == (3, 4)  # pyright: ignore[reportPrivateUsage]


async def test_a_closed_pool_keeps_nothing(pool: Pool):
    async with answering(sized(b"one")) as server:
        reply = await begun(pool, server.url)
        await pool.close()
        body = await reply.read(100)
        reply.close()
        await server.gone.wait()

    assert body == b"one"


# What is an answer


async def test_hints_before_the_answer_are_passed_over(pool: Pool):
    hints = b"HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nHTTP/1.1 103 Early\r\nSet-Cookie: no=1\r\nA: b\r\n\r\n"
    async with answering(hints + sized(b"one", b"C: d"), sized(b"two")) as server:
        reply = await begun(pool, server.url)
        first = await reply.read(100)
        reply.close()
        second = await got(pool, server.url)

    assert (reply.status, reply.reason, reply.cookies) == (200, "OK", [])
    assert (reply.headers, first) == ({"content-length": "3", "c": "d"}, b"one")
    assert (second, server.asked) == (b"two", [1, 1])


async def test_headers_are_read_by_name_and_cookies_line_by_line(pool: Pool):
    lines = (b"X-A:  b ", b"x-a: c", b"Set-Cookie: a=1", b"set-cookie: b=2", b"Content-Type: Text/Plain; a=b")
    async with answering(sized(b"", *lines).replace(b"OK", b"\x1b[31mAll \xe9")) as server:
        reply = await begun(pool, server.url)
        reply.close()

    assert (reply.headers["x-a"], reply.cookies, reply.kind) == ("b, c", ["a=1", "b=2"], "text/plain")
    assert (reply.reason, reply.is_success) == ("[31mAll é", True)


WHOLE = {
    "sized": sized(b"hello world"),
    "in chunks": CHUNKED + b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX: evil\r\nSet-Cookie: a=b\r\n\r\n",
    "up to the end": HEAD + b"A: b\r\n\r\nhello world",
}


@pytest.mark.parametrize("kind", WHOLE)
async def test_an_answer_may_come_byte_by_byte(pool: Pool, kind: str):
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in WHOLE[kind]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        writer.write_eof()

    async with answering(drip) as server:
        reply = await begun(pool, server.url)
        body = await reply.read(100)
        reply.close()

    assert (body, "x" in reply.headers, reply.cookies) == (b"hello world", False, [])


@pytest.mark.parametrize("kind", WHOLE)
async def test_wherever_an_answer_is_cut_it_is_the_same_and_half_of_it_is_none(pool: Pool, kind: str):
    text = WHOLE[kind]

    async def read(*pieces: bytes) -> bytes | str:
        reply = Reply(Connection(Url("http", "there", 80, "/"), pool.keep, pool.forget))
        for piece in pieces:
            reply.take(piece)
        reply.lost()
        try:
            await reply.until_head()
            return await reply.read(100)
        except BrokenOff as error:
            return str(error)

    assert {await read(text[:cut], text[cut:]) for cut in range(1, len(text))} == {b"hello world"}
    head = text.index(b"\r\n\r\n") + 4
    halves = [await read(text[:cut]) for cut in range(1, len(text))]
    assert set(halves[: head - 1]) == {"it hung up"}
    assert set(halves[head - 1 :]) == (
        {b"hello world"[:cut] for cut in range(11)} if kind == "up to the end" else {"it hung up"}
    )


BROKEN = {
    "a length twice": (HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\none", "no HTTP"),
    "two lengths": (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\none", "no HTTP"),
    "a list of lengths": (HEAD + b"Content-Length: 3, 3\r\n\r\none", "no HTTP"),
    "a length below zero": (HEAD + b"Content-Length: -3\r\n\r\none", "no HTTP"),
    "a length beyond reason": (HEAD + b"Content-Length: 99999999999999999999\r\n\r\none", "no HTTP"),
    "length and chunks": (HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "no HTTP"),
    "chunks and length": (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "no HTTP"),
    "another encoding": (HEAD + b"Transfer-Encoding: gzip\r\n\r\none", "it hung up"),
    "a chunk beyond reason": (CHUNKED + b"fffffffffffffffff\r\n", "no HTTP"),
    "a chunk below zero": (CHUNKED + b"-3\r\none\r\n", "no HTTP"),
    "a chunk that is longer": (CHUNKED + b"3\r\nonemore\r\n0\r\n\r\n", "no HTTP"),
    "cut short": (HEAD + b"Content-Length: 4\r\n\r\none", "it hung up"),
    "cut short between chunks": (CHUNKED + b"3\r\none\r\n", "it hung up"),
    "cut short in a head": (HEAD + b"Content-Len", "it hung up"),
    "nothing": (b"", "it hung up"),
    "only a hint": (b"HTTP/1.1 100 Continue\r\n\r\n", "it hung up"),
    "another protocol": (
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + sized(b"one"),
        "another protocol",
    ),
    "another protocol, unnamed": (b"HTTP/1.1 101 Switching\r\n\r\n" + sized(b"one"), "another protocol"),
    "a status that is none": (
        b"HTTP/1.1 000 No\r\nContent-Length: 4\r\n\r\nevil" + sized(b"one"),
        "status 0",
    ),
    "a line folded": (HEAD + b"A: b\r\n c\r\n\r\n", "no HTTP"),
    "a header without a name": (HEAD + b": b\r\n\r\n", "no HTTP"),
    "a NUL": (HEAD + b"A: b\0c\r\n\r\n", "no HTTP"),
    "bare line ends": (b"HTTP/1.1 200 OK\nContent-Length: 3\n\none", "no HTTP"),
    "another program": (b"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP"),
    "TLS": (b"\x15\x03\x01\x00\x02\x02\x46", "no HTTP"),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_what_is_no_answer_is_an_error_and_the_next_request_goes_well(pool: Pool, kind: str):
    bad, why = BROKEN[kind]
    async with answering(then_closed(bad), sized(b"two")) as server:
        with pytest.raises(BrokenOff, match=why):
            await got(pool, server.url)
        second = await got(pool, server.url)

    assert (second, server.asked) == (b"two", [1, 2])


async def test_a_connection_that_breaks_is_not_the_end_of_an_answer(pool: Pool):
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\nhalf")
        await asked.wait()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    asked = asyncio.Event()
    async with answering(reset) as server:
        reply = await begun(pool, server.url)
        half = await reply.part()
        asked.set()
        with pytest.raises(BrokenOff):
            await reply.part()
        reply.close()

    assert half == b"half"


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
async def test_what_comes_without_end_beside_a_body_is_hung_up_on(pool: Pool, kind: str):
    begin, more = ENDLESS[kind]
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(begin)
        while True:
            writer.write(more)
            sent += len(more)
            await writer.drain()

    async with answering(endless) as server:
        with pytest.raises(BrokenOff, match=r"no end|no HTTP"):
            await got(pool, server.url)
        await server.gone.wait()

    assert sent < 20_000_000


# Who waits for whom


@pytest.mark.promise("LNK-13")
async def test_a_server_waits_while_nobody_reads(pool: Pool):
    size, sent, done = 100_000_000, 0, asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(bytes(500_000))
            sent += 500_000
            await writer.drain()
        done.set()

    async with answering(flood, sized(b"two")) as server:
        reply = await begun(pool, server.url)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await done.wait()
        waiting, first = sent, len(await reply.part())
        read = first
        while part := await reply.part():
            read += len(part)
        reply.close()
        second = await got(pool, server.url)

    assert (first < 1_000_000, waiting < 30_000_000, read) == (True, True, size)
    assert (second, server.asked) == (b"two", [1, 1])


async def test_an_answer_that_is_too_long_is_an_error_and_hung_up_on(pool: Pool):
    async with answering(HEAD + b"Content-Length: 1000\r\n\r\n" + bytes(900)) as server:
        reply = await begun(pool, server.url)
        with pytest.raises(HoldfastError, match="more than 800 bytes") as error:
            await reply.read(800)
        reply.close()
        await server.gone.wait()

    assert error.value.code is codes.TOO_LARGE


async def test_who_closes_before_the_end_hangs_up_and_who_reads_on_hears_of_it(pool: Pool):
    async with answering(CHUNKED + b"3\r\none\r\n", sized(b"two")) as server:
        reply = await begun(pool, server.url)
        part = await reply.part()
        reading = asyncio.create_task(reply.part())
        await asyncio.sleep(0)
        reply.close()
        reply.close()
        await server.gone.wait()
        with pytest.raises(BrokenOff, match="hung up on"):
            await reading
        second = await got(pool, server.url)

    assert (part, second, server.asked) == (b"one", b"two", [1, 2])


async def test_an_answer_that_was_read_and_closed_is_not_left_to_the_collector(pool: Pool):
    class Watched(str):  # noqa: SLOT000 - looked for by a weak reference
        """Can be looked for when it is gone."""

    gc.disable()
    try:
        reply, watched = Reply(Connection(Url("http", "there", 80, "/"), pool.keep, pool.forget)), Watched()
        kept = weakref.ref(reply.headers.setdefault("x", watched))
        del watched
        reply.take(sized(b"one"))
        reply.close()
        del reply
    finally:
        gc.enable()

    assert kept() is None


# How a connection is made


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def silent(address: str, port: int) -> AsyncIterator[None]:
    """An address where connecting takes for ever: the queue is full, and nobody takes from it."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind((address, port))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex((address, port))
        yield


async def test_of_several_addresses_the_first_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "_NEXT_ADDRESS_SECONDS", 0.05)
    async with answering(sized(b"one"), sized(b"two")) as server, silent("127.0.0.2", server.url.port):
        before = open_files()
        for number, first in enumerate(("127.0.0.3", "127.0.0.2")):
            pool = Pool(at(first, first, "127.0.0.1"), TLS)
            assert await got(pool, server.url) == (b"one", b"two")[number]
            await pool.close()
        await server.gone.wait()
        async with asyncio.timeout(5):
            while open_files() > before:
                await asyncio.sleep(0.01)

    assert server.asked == [1, 2]


async def test_where_no_address_answers_the_reason_is_said(pool: Pool):
    async with answering() as server:
        nobody = Pool(at("127.0.0.3", "127.0.0.4"), TLS)
        nowhere = Pool(at(), TLS)
        with pytest.raises(Unreachable, match=r"^Connection refused$"):
            await got(nobody, server.url)
        with pytest.raises(Unreachable, match="it has no address"):
            await got(nowhere, server.url)

    assert server.came == 0


@pytest.mark.parametrize("addresses", [("127.0.0.2",), ("127.0.0.2", "127.0.0.2")])
@pytest.mark.parametrize("ends", ["in time", "cancelled"])
async def test_who_stops_connecting_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...], ends: str
):
    monkeypatch.setattr(client, "_NEXT_ADDRESS_SECONDS", 0.01)
    async with answering() as server, silent("127.0.0.2", server.url.port):
        before, tasks = open_files(), len(asyncio.all_tasks())
        pool = Pool(at(*addresses), TLS)
        asking = asyncio.create_task(begun(pool, server.url, 0.05 if ends == "in time" else 5))
        if ends == "cancelled":
            async with asyncio.timeout(5):
                while open_files() == before:
                    await asyncio.sleep(0.001)
            asking.cancel()
        await asyncio.wait([asking])
        async with asyncio.timeout(5):
            while open_files() > before or len(asyncio.all_tasks()) > tasks:
                await asyncio.sleep(0.001)

    assert asking.cancelled() if ends == "cancelled" else isinstance(asking.exception(), Unreachable)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_who_stops_waiting_hangs_up(pool: Pool, scheme: str):
    begun_waiting = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)  # for https this is the handshake, which nobody answers
        begun_waiting.set()

    server = Server()
    async with listening(wait, server):
        url = Url(scheme, "there", server.url.port, "/")
        asking = asyncio.create_task(begun(pool, url))
        await begun_waiting.wait()
        asking.cancel()
        await asyncio.wait([asking])
        await server.gone.wait()

    assert asking.cancelled()


@pytest.mark.parametrize("name", ["there", "there.", "elsewhere"])
async def test_a_certificate_must_be_for_the_name(tmp_path: Path, name: str):
    files = certificate(tmp_path, "there")
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(files["ssl_certfile"], files["ssl_keyfile"])
    pool = Pool(at("127.0.0.1"), ssl.create_default_context(cafile=files["ssl_certfile"]))
    async with answering(sized(b"one"), sized(b"two"), ssl=ours) as server, asyncio.timeout(10):
        url = Url("https", name, server.url.port, "/")
        if name == "elsewhere":
            with pytest.raises(Unreachable, match="its certificate is not valid"):
                await got(pool, url)
            answers: list[bytes] = []
        else:
            answers = [await got(pool, url), await got(pool, url)]
            await pool.close()
            await server.gone.wait()

    assert (answers, server.asked) == (([], []) if name == "elsewhere" else ([b"one", b"two"], [1, 1]))


# What is sent


def test_a_request_is_written_whole():
    url = Url("http", "there", 8080, "/a", "b=c")

    assert written("POST", url, {"x": "ü"}, b"body") == (
        b"POST /a?b=c HTTP/1.1\r\nhost: there:8080\r\naccept-encoding: identity\r\nx: \xc3\xbc\r\n"
        b"content-length: 4\r\n\r\nbody"
    )
    assert written("GET", Url("http", "::1", 80, "/"), {}, None) == (
        b"GET / HTTP/1.1\r\nhost: [::1]\r\naccept-encoding: identity\r\n\r\n"
    )


@pytest.mark.parametrize(
    "headers",
    [{"a": "b\r\nc: d"}, {"a": "b\nc"}, {"a": "b\rc"}, {"a": "b\0c"}, {"a\r\nb": "c"}, {"a": "\ud800"}],
    ids=ascii,
)
def test_a_header_that_would_end_early_is_refused(headers: dict[str, str]):
    with pytest.raises(HoldfastError) as error:
        written("GET", Url("http", "there", 80, "/"), headers, None)

    assert error.value.code is codes.BAD_ARGUMENT
