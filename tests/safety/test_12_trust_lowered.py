"""Attack 12: a session uses a server that was started before its trust was lowered."""

import asyncio
from pathlib import Path

import pytest

from holdfast.model.context import current_context, use_context
from holdfast.model.trust import Trust
from holdfast.toolkit import Toolbox
from holdfast.toolkit.authentication import ContextVarAuthenticator
from holdfast.toolkit.guards import direct_only
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.mcp.client import negotiate
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.mcp.server import server_peer
from holdfast.wire.messages import Raw
from holdfast.wire.peer import Peer
from tests.connect.conftest import HostFactory, counter_entry, folder, for_sandboxed, make_host
from tests.connect.processes import is_alive

__all__ = ["folder", "make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]


@pytest.mark.promise("RES-04")
async def test_next_call_runs_with_the_lower_trust(make_host: HostFactory, folder: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("out of reach")
    async with make_host({"c": for_sandboxed(counter_entry())}) as host, host.session(cwd=folder) as session:
        before = await session.call("c.read", {"path": str(tmp_path / "secret")})
        pid = (await session.call("c.whoami")).data["pid"]
        await session.lower_trust()
        after = await session.call("c.read", {"path": str(tmp_path / "secret")})

    assert (before.text, after.ok, is_alive(pid)) == ("out of reach", False, False)
    assert "out of reach" not in after.text


box = Toolbox("box", version="1")


@box.tool(guards=[direct_only])
def wipe() -> str:
    """Delete everything."""
    return "wiped"


@pytest.mark.promise("RES-04")
async def test_code_in_the_same_process_sees_the_lower_trust_at_once(make_host: HostFactory, folder: Path):
    async def wipe_later() -> list[tuple[Trust, bool]]:
        return [await _wipe(), await lowered.wait() and await _wipe()]

    lowered = asyncio.Event()
    async with make_host({}) as host, host.session(cwd=folder) as session:
        running = asyncio.create_task(wipe_later())
        await asyncio.sleep(0)
        before = await _wipe()
        copied = session.context
        await session.lower_trust()
        lowered.set()
        with use_context(copied):  # the control: a copy of the context keeps the old trust
            control = await _wipe()

        assert (before, await _wipe(), control) == (
            (Trust.DIRECT, True),
            (Trust.SANDBOXED, False),
            (Trust.DIRECT, True),
        )
        assert await running == [(Trust.DIRECT, True), (Trust.SANDBOXED, False)]


async def _wipe() -> tuple[Trust, bool]:
    """The trust of the current context, and whether a tool for direct sessions runs."""
    own, context = Peer(), current_context()
    assert context is not None
    async with connect_memory(own, server_peer(box.server(ContextVarAuthenticator()))):
        client = await negotiate(own, OwnInfo(implementation=Implementation(name="test", version="1")))
        result = await client.call_tool("wipe", Raw(b"{}"))
    return context.trust_level, not result.is_error


async def test_control_link_that_stays_open_keeps_the_old_trust(
    make_host: HostFactory, folder: Path, tmp_path: Path
):
    (tmp_path / "secret").write_text("out of reach")
    async with make_host({"c": for_sandboxed(counter_entry())}) as host, host.session(cwd=folder) as session:
        _, connection = await host.links.connect(session.scope, session.server("c"))
        kept = host.links._by_scope.pop(session.scope)  # so that lower_trust does not close it
        await session.lower_trust()
        result = await connection.call("read", Raw(b'{"path": "%b"}' % str(tmp_path / "secret").encode()))
        for link in kept.values():
            await link.close()

    assert b"out of reach" in bytes(result.content[0])
