"""Attack 63: bytes that a proxy and the gateway could read as different requests."""

import asyncio
import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.gateway import handles
from holdfast.toolkit import http_server
from holdfast.wire.http import receiver
from tests.gateway.running import Client, RunningGateway, modern_call, running_gateway

pytestmark = pytest.mark.anyio


class PlainProtocol(HttpToolsProtocol):
    """uvicorn's protocol without our checks."""

    is_head_complete = True
    heads = 0

    def on_headers_complete(self) -> None:
        self.heads += 1
        super().on_headers_complete()


def request(token: str, tool: str = "add") -> bytes:
    """A whole, honest request."""
    body, headers = modern_call(tool)
    content = json.dumps(body).encode()
    head = {
        "Host": "localhost",
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + content


async def send(running: RunningGateway, data: bytes, expected: int = 0) -> list[str]:
    """The status lines of the answers on one connection: as many as asked for, or all until it is closed or silent for a while."""
    url = urlsplit(running.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    answers = b""
    with suppress(ConnectionError, TimeoutError):
        writer.write(data)
        while not expected or len(_status_lines(answers)) < expected:
            part = await asyncio.wait_for(reader.read(65536), 60 if expected else 3)
            if not part:
                break
            answers += part
    writer.close()
    return _status_lines(answers)


def _status_lines(answers: bytes) -> list[str]:
    return [line.decode() for line in answers.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def smuggling_attempts(token: str) -> dict[str, bytes]:
    """Requests with the honest one hidden in them, by the way they hide it."""
    hidden = request(token)
    start = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    length = f"Content-Length: {5 + len(hidden)}\r\n".encode()
    return {
        "both lengths": start + length + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
        "two lengths": start + b"Content-Length: 0\r\n" + length + b"\r\n" + hidden,
        "a bare CR": start + b"X: a\rContent-Length: 0\r\n" + length + b"\r\n" + hidden,
        "a bare LF": start + b"X: a\nContent-Length: 0\n\n" + hidden,
        "a space before the colon": start + b"Content-Length : 0\r\n\r\n" + hidden,
        "a folded header": start + b"X: a\r\n Content-Length: 0\r\n" + length + b"\r\n" + hidden,
        "an unknown coding": start + b"Transfer-Encoding: xchunked\r\n" + length + b"\r\n" + hidden,
        "chunked twice": start
        + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"
        + hidden,
        "a signed length": start + b"Content-Length: +0\r\n\r\n" + hidden,
        "a chunk with a long size": start
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"0" * 20
        + b"\r\n\r\n"
        + hidden,
    }


async def test_a_request_hidden_in_another_is_not_run(tmp_path: Path):
    async with running_gateway(tmp_path) as running:
        attacker, victim = running.token("attacker"), running.token("victim")
        async with Client(running.url, victim) as client:
            await client.call("add")
            attempts = smuggling_attempts(attacker)
            found = await asyncio.gather(*(send(running, data) for data in attempts.values()))
            answers = dict(zip(attempts, found, strict=True))
            control = await send(running, request(attacker), expected=1)
            count = (await client.call("add"))["count"]

    # The request around the hidden one is malformed, or has no token: the connection ends with the answer to it.
    assert {name: [line.split()[1] for line in lines] for name, lines in answers.items()} == {
        name: ["401" if name == "a chunk with a long size" else "400"] for name in attempts
    }
    assert (control, count) == (["HTTP/1.1 200 OK"], 2)


def with_trailers(token: str) -> dict[str, bytes]:
    """The honest request in chunks. Some of its headers follow the body, by which."""
    head, _, content = request(token).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    chunks = b"%x\r\n%b\r\n0\r\n" % (len(content), content)
    requests: dict[str, bytes] = {}
    for name in (b"Authorization", b"Host", b"Mcp-Method"):
        late = next(line for line in lines if line.startswith(name))
        early = [line for line in lines if line is not late] + [b"Transfer-Encoding: chunked"]
        requests[name.decode()] = b"\r\n".join(early) + b"\r\n\r\n" + chunks + late + b"\r\n\r\n"
    requests["another"] = (
        b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n" + chunks + b"X: y\r\n\r\n"
    )
    return requests


CODINGS = [b"gzip, chunked", b", chunked", b'a;q="b, chunked', b"gzip\r\nTransfer-Encoding: chunked"]


async def test_a_body_with_an_unknown_coding_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A proxy that does not know the coding, or parses the header differently, may find another end of the body."""
    start = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    async def hidden_calls(running: RunningGateway) -> int:
        """How many of the hidden requests opened a session."""
        for coding in CODINGS:
            hidden = request(running.token()).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
            await send(running, start + b"Transfer-Encoding: %b\r\n\r\n0\r\n\r\n" % coding + hidden, 9)
        return len(running.gateway.app.open_sessions())

    async with running_gateway(tmp_path) as running:
        found = await hidden_calls(running)
        monkeypatch.setattr(http_server, "_HttpProtocol", PlainProtocol)
        control = await hidden_calls(running)

    assert (found, control) == (0, len(CODINGS))


async def test_headers_after_the_body_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with running_gateway(tmp_path) as running:
        attempts = with_trailers(running.token())
        found = [await send(running, data, expected=1) for data in attempts.values()]
        sessions = len(running.gateway.app.open_sessions())
    monkeypatch.setattr(http_server, "_HttpProtocol", PlainProtocol)
    (tmp_path / "control").mkdir()
    async with running_gateway(tmp_path / "control") as running:
        control = [await send(running, data, expected=1) for data in with_trailers(running.token()).values()]

    assert (found, sessions) == ([["HTTP/1.1 400 Bad Request"]] * 4, 0)
    assert control == [["HTTP/1.1 200 OK"]] * 4  # they count, if they arrive with the head


OTHER_PROTOCOLS = {
    "a WebSocket": (b"POST", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    "HTTP/2": (b"POST", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"),
    "an unknown one": (b"DELETE", b"Upgrade: x\r\nConnection: keep-alive, upgrade\r\n"),
    "two headers": (b"POST", b"Connection: keep-alive\r\nConnection: upgrade\r\nUpgrade: x\r\n"),
    "a tunnel": (b"CONNECT", b""),
}


async def send_body_later(running: RunningGateway, method: bytes, more: bytes, hidden: bytes) -> list[str]:
    """The status codes of the answers to a head, and to a request that is sent as its body once the head is answered."""
    url = urlsplit(running.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    head = b"%b /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
    writer.write(head % (method, more, len(hidden)))
    answers = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    with suppress(ConnectionError):
        writer.write(hidden)
        while len(_status_lines(answers)) < 2 and (part := await asyncio.wait_for(reader.read(65536), 60)):
            answers = answers.replace(b"}HTTP/", b"}\r\nHTTP/") + b"\r\n" + part
    writer.close()
    return [
        line.split()[1] for line in answers.decode("latin-1").split("\r\n") if line.startswith("HTTP/1.1 ")
    ]


async def test_the_body_of_a_request_for_another_protocol_is_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def answers(folder: Path) -> dict[str, list[str]]:
        folder.mkdir()
        async with running_gateway(folder) as running:
            hidden = request(running.token())
            return {
                name: await send_body_later(running, *head, hidden) for name, head in OTHER_PROTOCOLS.items()
            }

    found = await answers(tmp_path / "protected")
    monkeypatch.setattr(http_server, "_HttpProtocol", PlainProtocol)
    with_other_server = await answers(tmp_path / "in an application")
    monkeypatch.setattr(receiver, "read_headers", _join_headers)
    monkeypatch.setattr(handles, "read_headers", _join_headers)
    control = await answers(tmp_path / "control")

    refused = {key: ["400"] for key in OTHER_PROTOCOLS}
    assert found == refused | {"a tunnel": ["401"]}
    # In the application of another server, the gateway sees the headers, but not that a request is a CONNECT before its token is missing.
    assert with_other_server == refused | {"a tunnel": ["401", "200"]}
    assert {name: codes[1:] for name, codes in control.items()} == {key: ["200"] for key in OTHER_PROTOCOLS}


def _join_headers(raw: Collection[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers, unchecked."""
    return {name.decode(): value.decode() for name, value in raw}
