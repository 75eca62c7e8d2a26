"""Attack 11: the agent calls a tool that was filtered from the list, or reads a resource of a server that rules deny."""

from pathlib import Path

import pytest

from holdfast.audit.record import AuditKind, decode_record
from holdfast.host.host import Host
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ToolCalled
from holdfast.wire.messages import Raw
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


@pytest.mark.promise("CTX-05")
@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize("limit", ["rule", "tools", "none"])
async def test_rules_and_limits_hold_for_resources_and_prompts_too(
    make_host: HostFactory, tmp_path: Path, limit: str
):
    shared = counter_entry("--shared", lifetime="host")
    rules = {"HOLDFAST_PERMISSION_DENY": "c"} if limit == "rule" else {}
    tools = ["c.received", "c.count"] if limit == "tools" else None
    requests: list[str] = []
    async with (
        make_host({"c": shared}, **rules) as host,
        host.session(cwd=tmp_path, tools=tools, permission="read-only", user_id="ann") as session,
    ):
        for request in (
            lambda: session.read_resource("c", "note://one"),
            lambda: session.get_prompt("c", "greet"),
            lambda: session.list_resources("c"),
            lambda: session.list_prompts("c"),
        ):
            try:
                await request()
            except HoldfastError as error:
                requests.append(error.code.name)
            else:
                requests.append("ok")
        stored = [
            (kept.event.server, kept.event.tool)
            async for kept in host.store.events(session.context.session_id)
            if isinstance(kept.event, ToolCalled)
        ]
        audited = [(note.kind, note.tool.removeprefix("c.")) for note in await _audited(host) if note.tool]

    assert requests == ["ok" if limit == "none" else "NOT_PERMITTED"] * 4  # without a limit: the control
    sent = ["resources/read", "prompts/get"]
    assert stored == ([] if limit == "tools" else [("c", method) for method in sent])
    kind = AuditKind.DENIED if limit == "tools" else AuditKind.CALL
    assert audited == [(kind, method) for method in sent]


async def _audited(host: Host):
    return [decode_record(row.body) for row in await host.store.read(lambda tx: [*tx.audit_rows()])]


async def _denied(host: Host):
    return [note for note in await _audited(host) if note.kind is AuditKind.DENIED]


async def test_control_server_itself_would_answer(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host({"c": counter_entry(tools=["count"])}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        _, connection = await host.links.connect(session.scope, session.server("c"))
        result = await connection.call("whoami", Raw(b"{}"))

    assert not result.is_error
