"""The headers that repeat parts of a message, compared with the SDK's."""

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.shared.inbound import decode_header_value, mcp_param_headers, x_mcp_header_map
from mcp.shared.inbound import encode_header_value as sdk_encode_header_value
from pydantic import Field

from holdfast.connect.http.outgoing_message import encode_header_value, parse_outgoing
from holdfast.connect.http.param_headers import ParamHeaders
from holdfast.host.data_folder import KEYS_FOLDER
from holdfast.model.context import META_KEY
from holdfast.token import Signer, Verifier, audience_of
from holdfast.wire.mcp.eras import VERSION_KEY, Era
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.messages import Raw, notification_line, request_line
from tests.connect.conftest import HostFactory
from tests.connect.web import (
    HEADER,
    ScriptedServer,
    connect_options,
    data_dir,
    http_entry,
    open_session,
    result_response,
    serve,
)

TEXTS = [
    "plain",
    "",
    " edge",
    "edge ",
    "ünï",
    "tab\there",
    "line\nend",
    "=?base64?eA==?=",
    "a b",
    "x" * 500,
    "\x7f",
]


@pytest.mark.parametrize("text", TEXTS)
def test_header_value_is_encoded_as_in_the_sdk(text: str):
    assert (encode_header_value(text), decode_header_value(encode_header_value(text))) == (
        sdk_encode_header_value(text),
        text,
    )


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "sure": {"type": "boolean", "x-mcp-header": "Sure"},
        "deep": {"type": "object", "properties": {"er": {"type": "string", "x-mcp-header": "Deeper"}}},
        "plain": {"type": "string"},
    },
}


def listed(schema: dict[str, Any]) -> Tool:
    return Tool(name="go", input_schema=Raw(json.dumps(schema).encode()))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    [
        {"region": "eu", "count": 3, "sure": True, "deep": {"er": "x"}, "plain": "no"},
        {"region": None, "deep": 7},
        {"sure": False, "region": "ü"},
        {},
    ],
)
async def test_marked_arguments_become_the_same_headers_as_in_the_sdk(arguments: dict[str, Any]):
    param_headers = ParamHeaders()
    await param_headers.set_tools([listed(SCHEMA)])
    meta = {VERSION_KEY: "2026-07-28"}

    message = parse_outgoing(
        request_line(1, "tools/call", {"name": "go", "arguments": arguments, "_meta": meta}), param_headers
    )

    named = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "go"}
    assert message.headers == {**named, **mcp_param_headers(x_mcp_header_map(SCHEMA), arguments)}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "mark",
    [7, "", "with blank", "Evil\r\nHost: x", "x" * 200, None, {"a": 1}],
    ids=lambda mark: repr(mark)[:20],
)
async def test_mark_that_is_not_a_header_name_has_no_effect(mark: Any):
    param_headers = ParamHeaders()
    schema = {"properties": {"a": {"type": "string", "x-mcp-header": mark}}}
    await param_headers.set_tools([listed(schema)])

    assert param_headers.headers("go", Raw(b'{"a": "b"}')) == {}


@pytest.mark.anyio
async def test_tool_without_marks_in_a_later_list_has_no_headers():
    param_headers = ParamHeaders()
    for schema in (SCHEMA, {"type": "object", "properties": {"region": {"type": "string"}}}):
        await param_headers.set_tools([listed(schema)])

    assert param_headers.headers("go", Raw(b'{"region": "eu"}')) == {}


def test_message_of_the_handshake_era_does_not_repeat_its_content_in_headers():
    message = parse_outgoing(request_line(1, "tools/call", {"name": "go", "arguments": {}}), ParamHeaders())
    cancellation = parse_outgoing(
        notification_line("notifications/cancelled", {"requestId": 1}), ParamHeaders()
    )

    assert (message.headers, message.is_request, message.is_modern) == ({}, True, False)
    assert (cancellation.is_request, cancellation.cancels) == (False, 1)


@pytest.mark.anyio
async def test_server_that_compares_headers_and_body_accepts_the_call(make_host: HostFactory, folder: Path):
    server = MCPServer("strict")

    @server.tool()
    def weigh(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Return a weight."""
        return region

    app = server.streamable_http_app()
    async with (
        serve(app) as url,
        open_session(make_host, folder, {"web": http_entry(url)}, connect_options(Era.MODERN)) as session,
    ):
        answer = await session.call("web.weigh", {"region": "Zürich\n"})

    assert answer.text == "Zürich\n"


@pytest.mark.promise("CTX-05")
@pytest.mark.promise("CTX-08")
@pytest.mark.anyio
async def test_each_request_tells_a_shared_server_which_session_is_calling(
    make_host: HostFactory, folder: Path
):
    async def answer(scripted: ScriptedServer, request: Any, message: dict[str, Any]) -> Any:
        if message.get("method") != "server/discover":
            return None
        capabilities: dict[str, Any] = {"tools": {}, "extensions": {META_KEY: {}}}
        return result_response(message, {"supportedVersions": ["2026-07-28"], "capabilities": capabilities})

    scripted = ScriptedServer(answer)
    async with (
        serve(scripted) as url,
        make_host({"web": http_entry(url, lifetime="host")}, options=connect_options()) as host,
        host.session(cwd=folder) as one,
        host.session(cwd=folder) as other,
    ):
        for session in (one, other, one):
            await session.call("web.go")

    verifier = Verifier(Signer(data_dir(make_host) / KEYS_FOLDER).public_file)
    said = [
        (
            verifier.verify(headers[HEADER], audience_of(f"{url}/mcp"), request=body).context.session_id,
            json.loads(body)["params"]["_meta"][META_KEY]["session_id"],
        )
        for headers, body in scripted.calls()
    ]
    assert said == [(session.context.session_id,) * 2 for session in (one, other, one)]
    assert [headers.get(HEADER) for _, headers, body in scripted.requests if b"server/discover" in body] == [
        None
    ]
