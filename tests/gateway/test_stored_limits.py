"""A session of an MCP client keeps the limits of its token when a person resumes it."""

from pathlib import Path

import pytest

from holdfast import Host
from holdfast.gateway.client_session import ClientSession
from holdfast.gateway.credential import Credential
from holdfast.gateway.options import GatewayOptions
from holdfast.model.permission import Mode
from holdfast.model.tool_pattern import parse_tool_pattern
from holdfast.testing import FakeServer, host_of
from holdfast.wire.mcp.eras import Era, Implementation
from holdfast.wire.mcp.server import ClientInfo

pytestmark = pytest.mark.anyio

CLIENT = ClientInfo(
    era=Era.MODERN,
    version="2026-07-28",
    implementation=Implementation("client", "1"),
    capabilities={},
    meta={},
)
NOTES = ["notes.read", "notes.write"]


async def offered_after_resuming(host: Host, credential: Credential, folder: Path) -> list[str]:
    client = ClientSession(host, credential, GatewayOptions(cwd=folder, builtins=frozenset()), CLIENT, "key")
    session_id = (await client.session()).context.session_id
    await client.close("done")
    async with await host.reopen(session_id) as session:
        names = [tool.name for tool in await session.tools()]
    return [name for name in names if name.split(".")[0] in ("notes", "mail")]


@pytest.mark.promise("GW-06")
async def test_limits_of_a_token_hold_when_its_session_is_resumed(tmp_path: Path):
    read_only = Credential(id="a", mode=Mode.AUTO, tools=(parse_tool_pattern("notes.read"),))
    one_server = Credential(id="b", mode=Mode.AUTO, servers=frozenset({"notes"}))
    unlimited = Credential(id="c", mode=Mode.AUTO)
    notes, mail = FakeServer({"read": 1, "write": 2}), FakeServer({"send": 3})
    async with host_of(notes=notes, mail=mail) as host:
        found = [
            sorted(await offered_after_resuming(host, one, tmp_path))
            for one in (read_only, one_server, unlimited)
        ]

    assert found == [["notes.read"], NOTES, ["mail.send", *NOTES]]
