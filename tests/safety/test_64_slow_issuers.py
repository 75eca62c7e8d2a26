"""Attack 64: an issuer of tokens answers byte by byte, while clients of the gateway need its keys, or another issuer's."""

import asyncio
import json
import socket
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.fetch_url import Deadline, FetchError, fetch_url
from holdfast.token import fetch_issuer_keys, issuer_keys
from holdfast.token.fetch_issuer_keys import KeySetSource
from holdfast.token.issuer_keys import IssuerKeys
from tests.token.test_issuer import KEY_SET

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08")]

SECONDS, BYTES, PACE = 0.1, 60, 0.01
STARTS = {
    "head": b"HTTP/1.1 200 OK\r\nX-A: ",
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n300\r\n",
    "tls": b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc",  # a long handshake message
}


class SlowServer:
    """Begins each answer at once, and then sends one byte after another."""

    def __init__(self, start: bytes) -> None:
        self.sent = self.connections = 0
        self.is_ended = threading.Event()
        self._start = start
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):
            connection.recv(4096)
            connection.sendall(self._start)
            for _ in range(BYTES):
                if self.is_ended.wait(PACE):
                    return
                connection.sendall(b"a")
                self.sent += 1

    def close(self) -> None:
        self.is_ended.set()
        self._listener.close()


@contextmanager
def slow_server(kind: str) -> Generator[SlowServer]:
    server = SlowServer(STARTS[kind])
    with closing(server):
        yield server


def bytes_sent_until_the_fetch_ends(kind: str) -> int:
    scheme = "https" if kind == "tls" else "http"
    with slow_server(kind) as server:
        with pytest.raises(FetchError):
            fetch_url(f"{scheme}://127.0.0.1:{server.port}/", deadline=Deadline(SECONDS), max_bytes=10_000)
        return server.sent


@pytest.mark.parametrize("kind", STARTS)
def test_the_whole_fetch_has_one_deadline(kind: str):
    assert bytes_sent_until_the_fetch_ends(kind) < BYTES


@pytest.mark.parametrize("kind", ["head", "body"])
def test_control_with_a_limit_for_each_read_all_bytes_are_read(kind: str, monkeypatch: pytest.MonkeyPatch):
    def shut_down_nothing(self: Deadline) -> None:
        pass

    monkeypatch.setattr(Deadline, "_shut_down", shut_down_nothing)
    assert bytes_sent_until_the_fetch_ends(kind) == BYTES


async def test_all_requests_for_a_key_set_share_the_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fetch_issuer_keys, "FETCH_SECONDS", SECONDS)
    with slow_server("head") as server:
        with pytest.raises(HoldfastError, match=r"took too long|TimeoutError"):
            await KeySetSource(f"http://127.0.0.1:{server.port}").fetch()
        found = server.connections, server.sent < BYTES

    assert found == (1, True)  # no time is left for the second address of the metadata


async def test_a_slow_issuer_leaves_threads_for_others():
    with slow_server("head") as server:
        slow = [
            asyncio.ensure_future(KeySetSource(f"http://127.0.0.1:{server.port}/{number}").fetch())
            for number in range(3)
        ]
        while server.connections < len(slow):
            await asyncio.sleep(0)
        with socket.create_server(("127.0.0.1", 0)) as good:
            port = good.getsockname()[1]
            fetching = asyncio.ensure_future(
                KeySetSource("http://localhost", f"http://127.0.0.1:{port}/").fetch()
            )
            connection, _ = await asyncio.to_thread(good.accept)
            with connection:
                await asyncio.to_thread(connection.recv, 4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n{}")
            keys = await fetching
        are_slow = not any(task.done() for task in slow)
        server.close()
        await asyncio.gather(*slow, return_exceptions=True)

    assert (keys, are_slow) == (b"{}", True)


class SlowIssuer:
    """The first fetch is answered at once, and the next one when `answer` is set."""

    def __init__(self) -> None:
        self.age = 0.0
        self.fetched = 0
        self.answer = asyncio.Event()

    async def fetch(self) -> bytes:
        self.fetched += 1
        if self.fetched > 1:
            await self.answer.wait()
        return json.dumps(KEY_SET).encode()


async def test_tokens_with_known_keys_do_not_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(issuer_keys, "_OLD_KEYS_WAIT_SECONDS", 0.0)
    issuer = SlowIssuer()
    keys = IssuerKeys(issuer.fetch, lambda: issuer.age)
    await keys.prepare("rsa")
    issuer.age = 60.0
    unknown = asyncio.ensure_future(keys.prepare("unknown"))
    await asyncio.sleep(0)
    await keys.prepare("rsa")  # new enough
    issuer.age = 3700.0
    await keys.prepare("rsa")  # old, but good for use
    waits = not unknown.done()
    issuer.answer.set()
    await unknown

    assert (waits, issuer.fetched) == (True, 2)


async def test_a_request_that_ends_does_not_end_the_fetch_of_others():
    issuer = SlowIssuer()
    issuer.fetched = 1
    keys = IssuerKeys(issuer.fetch, lambda: issuer.age)
    first, second = (asyncio.ensure_future(keys.prepare("rsa")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    issuer.answer.set()
    await second

    assert (first.cancelled(), keys.find("rsa") is not None, issuer.fetched) == (True, True, 2)
