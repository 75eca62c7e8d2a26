"""Attack 24: a web page whose host name resolves to this machine talks to a local server through the browser."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

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


def post(url: str, headers: dict[str, str]) -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=10)
    try:
        connection.request("POST", parts.path, BODY, {**HEADERS, **headers})
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
