"""Attack 11: the agent calls a tool that was filtered from the list."""

from pathlib import Path

import pytest

from holdfast.audit.record import AuditKind, decode_record
from holdfast.host.host import Host
from holdfast.wire.frame import Raw
from tests.connect.conftest import HostFactory, counter_entry, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@pytest.mark.promise("RES-06")
@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize(
    "name", ["c.whoami", "c__whoami", "whoami", "c.whoami ", "C.whoami", "c.count/../whoami"]
)
async def test_filtered_tool_is_refused_and_the_attempt_is_audited(
    make_host: HostFactory, tmp_path: Path, name: str
):
    async with (
        make_host({"c": counter_entry(tools=["count", "received"])}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        listed = {tool.name for tool in await session.tools() if tool.server.name == "c"}
        refused = await session.call(name, {"x": 1})
        received = (await session.call("c.received")).data
        denied = await _denied(host)

    assert (listed, refused.code) == ({"c.count", "c.received"}, "UNKNOWN_TOOL")
    assert [(note.tool, note.outcome) for note in denied] == [(name, "UNKNOWN_TOOL")]
    assert received["tools/call"] is not None  # the first call that reached the server is this one


async def _denied(host: Host):
    rows = await host.store.read(lambda tx: [*tx.audit_rows()])
    notes = [decode_record(row.body) for row in rows]
    return [note for note in notes if note.kind is AuditKind.DENIED]


async def test_control_server_itself_would_answer(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host({"c": counter_entry(tools=["count"])}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        _, connection = await host.links.connect(session.scope, session.server("c"))
        result = await connection.call("whoami", Raw(b"{}"))

    assert not result.is_error
