"""Attack 25: the headers name one tool to a proxy that routes by them, and the body another to the server."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.wire.http import HttpApp
from holdfast.wire.mcp.tools import ParamHeader
from tests.wire.test_http import MODERN, Client, Echo, modern

pytestmark = pytest.mark.anyio


class EchoWithParamHeaders(Echo):
    def param_headers_of(self, tool: str) -> tuple[ParamHeader, ...]:
        return (
            ParamHeader(path=("region",), header="Region"),
            ParamHeader(path=("size",), header="Size", is_number=True),
            ParamHeader(path=("on",), header="On"),
        )


async def status_and_code(
    headers: Mapping[str, str], arguments: dict[str, Any] | None = None
) -> tuple[int, Any]:
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": arguments or {}, "_meta": MODERN},
    }
    _, good_headers = modern("echo")
    answer = await Client(HttpApp(EchoWithParamHeaders())).send(
        "POST", json.dumps(message).encode(), {**good_headers, **headers}
    )
    return answer.status, answer.json.get("error", {}).get("code")


@pytest.mark.parametrize(
    "headers",
    [
        {"mcp-method": "tools/list"},
        {"mcp-method": "TOOLS/CALL"},
        {"mcp-method": ""},
        {"mcp-name": "harmless"},
        {"mcp-name": ""},
        {"mcp-name": "=?base64?aGFybWxlc3M=?="},
        {"mcp-name": "=?base64?ZWNobw?="},
        {"mcp-protocol-version": "2025-11-25"},
        {"mcp-protocol-version": ""},
        {"mcp-param-region": "eu"},
    ],
)
async def test_headers_that_contradict_the_body_are_refused(headers: dict[str, str]):
    assert await status_and_code(headers) == (400, -32020)


@pytest.mark.parametrize(
    ("headers", "arguments", "agrees"),
    [
        ({"mcp-param-region": "eu"}, {"region": "eu"}, True),
        ({"mcp-param-region": "=?base64?w6R1?="}, {"region": "äu"}, True),
        ({"mcp-param-size": "42.0"}, {"size": 42}, True),
        ({"mcp-param-on": "true"}, {"on": True}, True),
        ({}, {"region": None}, True),
        ({"mcp-param-region": "us"}, {"region": "eu"}, False),
        ({}, {"region": "eu"}, False),
        ({"mcp-param-size": "43"}, {"size": 42}, False),
        ({"mcp-param-on": "True"}, {"on": True}, False),
        ({"mcp-param-region": "x"}, {"region": {"deep": 1}}, False),
    ],
)
async def test_param_headers_must_agree_with_the_arguments(
    headers: dict[str, str], arguments: dict[str, Any], agrees: bool
):
    assert await status_and_code(headers, arguments) == ((200, None) if agrees else (400, -32020))


@pytest.mark.parametrize(
    "name", ["mcp-method", "mcp-name", "mcp-protocol-version", "host", "holdfast-context"]
)
async def test_duplicate_header_is_refused(name: str):
    body, good_headers = modern("echo")
    good_headers = {"host": "localhost", "content-type": "application/json", **good_headers}
    headers = [
        *((key.encode(), value.encode()) for key, value in good_headers.items()),
        (name.encode(), b"other"),
    ]
    if name == "holdfast-context":
        headers.append((name.encode(), b"another"))
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    await HttpApp(Echo())(
        {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}, receive, send
    )

    assert statuses == [400]


async def test_control_headers_that_agree_with_the_body_are_accepted():
    assert await status_and_code({}) == (200, None)


async def test_control_server_that_does_not_compare_runs_what_the_body_says():
    """The proxy routes the request as `harmless`; a server that reads only the body runs another tool."""
    body, good_headers = modern("echo")
    routed_by = {**good_headers, "mcp-name": "harmless"}["mcp-name"]
    done_by = json.loads(body)["params"]["name"]

    assert (routed_by, done_by) == ("harmless", "echo")
