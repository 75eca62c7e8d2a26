"""Attack 24: a web page whose host name resolves to this machine talks to a local server through the browser."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.toolkit import http_server
from holdfast.wire.http import AllowedHosts, HttpApp
from tests.toolkit.clients import MODERN_META
from tests.toolkit.server_process import run_http_server
from tests.wire.test_http import Client, Echo, modern

BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "who", "arguments": {}, "_meta": MODERN_META},
    }
)
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "who",
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_http_server("tests.toolkit.notes_server") as url:
        yield url


def post(url: str, headers: dict[str, str], target: str = "") -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=10)
    try:
        connection.request("POST", target or parts.path, BODY, {**HEADERS, **headers})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example:80"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
    ],
)
def test_request_of_a_web_page_is_refused(url: str, headers: dict[str, str], status: int):
    answered, body = post(url, headers)

    assert (answered, "structuredContent" in body) == (status, False)


@pytest.mark.parametrize(
    ("authority", "status"),
    [("evil.example", 403), ("localhost@evil.example", 403), ("evil.example:80", 403), ("localhost", 200)],
)
def test_the_host_in_an_absolute_request_target_is_checked(url: str, authority: str, status: int):
    parts = urlsplit(url)
    answered, body = post(url, {"Host": parts.netloc}, target=f"http://{authority}{parts.path}")

    assert (answered, "structuredContent" in body) == (status, status == 200)


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", [http_server._HttpProtocol, HttpToolsProtocol])
async def test_control_an_application_sees_only_the_header_unless_the_protocol_replaces_it(
    protocol: type[HttpToolsProtocol], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_server._HttpProtocol, "on_headers_complete", protocol.on_headers_complete)
    hosts: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        hosts.extend(value for name, value in scope["headers"] if name == b"host")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    listening = http_server.bind("127.0.0.1", 0)
    async with http_server.serve_app(app, listening):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"GET http://evil.example/mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()

    assert hosts == [b"localhost" if protocol is HttpToolsProtocol else b"evil.example"]


def test_control_local_client_is_served(url: str):
    answered, body = post(url, {})

    assert (answered, "structuredContent" in body) == (200, True)


@pytest.mark.anyio
@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}])
async def test_control_without_the_check_the_page_is_served(headers: dict[str, str]):
    class Open(AllowedHosts):
        def check(self, headers: Any) -> None:
            """Accept every request."""

    body, good_headers = modern("echo")

    answer = await Client(HttpApp(Echo(), allowed_hosts=Open())).send(
        "POST", body, {**good_headers, **headers}
    )

    assert answer.status == 200
