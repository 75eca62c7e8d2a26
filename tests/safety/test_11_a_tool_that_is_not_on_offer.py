"""Attack 11: a direct call of a tool that was filtered from the list."""

from pathlib import Path

import pytest

from holdfast.audit.record import AuditKind, read_record
from holdfast.host import Host
from holdfast.wire.frame import Raw
from tests.connect.conftest import HostFactory, counter, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@pytest.mark.promise("RES-06")
@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize(
    "name", ["c.whoami", "c__whoami", "whoami", "c.whoami ", "C.whoami", "c.count/../whoami"]
)
async def test_it_is_refused_when_it_is_called_and_the_attempt_is_on_record(
    make_host: HostFactory, tmp_path: Path, name: str
):
    async with (
        make_host({"c": counter(tools=["count", "heard"])}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        listed = {offer.name for offer in await session.tools() if offer.server.name == "c"}
        refused = await session.call(name, {"x": 1})
        heard = (await session.call("c.heard")).data
        denied = await _denied(host)

    assert (listed, refused.code) == ({"c.count", "c.heard"}, "UNKNOWN_TOOL")
    assert [(note.tool, note.outcome) for note in denied] == [(name, "UNKNOWN_TOOL")]
    assert heard["tools/call"] is not None  # the first call that reached it is the one that asks


async def _denied(host: Host):
    rows = await host.store.read(lambda reads: [*reads.audit_rows()])
    notes = [read_record(row.body) for row in rows]
    return [note for note in notes if note.kind is AuditKind.DENIED]


async def test_control_the_server_itself_would_have_answered(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter(tools=["count"])}) as host, host.session(cwd=tmp_path) as session:
        _, connection = await host.links.connected(session.scope, session.server("c"))
        result = await connection.call("whoami", Raw(b"{}"))

    assert not result.is_error
