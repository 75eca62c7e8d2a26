"""Attack 25: the headers say one thing to whoever routes by them, and the body another to the server."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.wire.http import HttpApp
from holdfast.wire.mcp.mirrors import Mirror, Mirrors
from tests.wire.test_http import MODERN, Client, Echo, modern

pytestmark = pytest.mark.anyio


class Mirrored(Echo):
    def mirrors_of(self, tool: str) -> Mirrors:
        return (
            Mirror(path=("region",), header="Region"),
            Mirror(path=("size",), header="Size", number=True),
            Mirror(path=("on",), header="On"),
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
    _, said = modern("echo")
    answer = await Client(HttpApp(Mirrored())).send("POST", json.dumps(message).encode(), {**said, **headers})
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
async def test_it_is_refused(headers: dict[str, str]):
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
async def test_mirrored_arguments_agree_with_their_headers_or_are_refused(
    headers: dict[str, str], arguments: dict[str, Any], agrees: bool
):
    assert await status_and_code(headers, arguments) == ((200, None) if agrees else (400, -32020))


@pytest.mark.parametrize(
    "name", ["mcp-method", "mcp-name", "mcp-protocol-version", "host", "holdfast-context"]
)
async def test_a_header_that_stands_twice_is_refused_whichever_copy_is_true(name: str):
    body, said = modern("echo")
    said = {"host": "localhost", "content-type": "application/json", **said}
    headers = [*((key.encode(), value.encode()) for key, value in said.items()), (name.encode(), b"other")]
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


async def test_control_headers_that_tell_the_truth_pass():
    assert await status_and_code({}) == (200, None)


async def test_control_a_server_that_does_not_compare_does_what_the_body_says():
    """What the router let through as `harmless` is another tool to a server that reads the body alone."""
    body, said = modern("echo")
    routed_by = {**said, "mcp-name": "harmless"}["mcp-name"]
    done_by = json.loads(body)["params"]["name"]

    assert (routed_by, done_by) == ("harmless", "echo")
