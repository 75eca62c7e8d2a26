"""What a person changes while the gateway runs reaches the open sessions of both eras."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from holdfast.host import config_watch
from holdfast.model.json import Json
from holdfast.model.server import Source
from holdfast.resolve.server_entry import ServerEntry
from tests.gateway.running import COUNTER, RunningGateway, running_gateway
from tests.gateway.test_bridging import ERAS, text_of

pytestmark = pytest.mark.anyio
ENTRY = {"command": sys.executable, "args": [str(COUNTER)]}


@pytest.fixture(autouse=True)
def check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_watch, "CHECK_SECONDS", 0.02)


def configure(folder: Path, *names: str) -> None:
    """Configure these servers as the user's own."""
    write_servers(folder, dict.fromkeys(names, ENTRY))


def write_servers(folder: Path, entries: Mapping[str, object]) -> None:
    """Write the user's own list of servers."""
    file = folder / "data" / "mcp.json"
    file.parent.mkdir(exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"mcpServers": entries}))
    new.replace(file)


class Changes:
    """Waits until a client is told that its tools have changed."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()

    async def on_message(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._heard.set()

    async def wait_for(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait for changes until the condition holds."""
        async with asyncio.timeout(30):
            while not await holds():
                await self._heard.wait()
                self._heard.clear()

    async def listen(self, session: Client) -> None:
        async with session.listen(tools_list_changed=True) as events:
            self._heard.set()
            async for _ in events:
                self._heard.set()


@asynccontextmanager
async def connected(gateway: RunningGateway, era: str) -> AsyncIterator[tuple[Client, Changes]]:
    """A client of this era that is told when its tools have changed."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    changes = Changes()
    headers = {"Authorization": f"Bearer {gateway.token()}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(
            streamable_http_client(gateway.url, http_client=http),
            mode=ERAS[era],
            message_handler=changes.on_message,
        ) as session,
    ):
        listening = asyncio.create_task(changes.listen(session)) if era == "modern" else None
        try:
            yield session, changes
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])


async def names_of(session: Client) -> set[str]:
    return {tool.name for tool in (await session.list_tools()).tools}


@pytest.mark.slow
@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("era", [*ERAS])
async def test_a_server_that_is_added_or_removed_reaches_open_sessions(era: str, tmp_path: Path):
    configure(tmp_path, "first")
    async with (
        running_gateway(tmp_path, servers={}) as gateway,
        connected(gateway, era) as (session, changes),
    ):
        await session.call_tool("add", {})
        configure(tmp_path, "first", "second")
        await changes.wait_for(lambda: has(session, "second__add"))
        added = await session.call_tool("second__add", {})
        kept = await session.call_tool("add", {})
        configure(tmp_path, "second")
        await changes.wait_for(lambda: lacks(session, "add"))
        with pytest.raises(MCPError) as refused:
            await session.call_tool("add", {})

    # The first server kept its state and its names.
    assert kept.structured_content is not None
    assert added.structured_content is not None
    assert (kept.structured_content["count"], added.structured_content["count"]) == (2, 1)
    assert "There is no tool 'add' here" in str(refused.value)


@pytest.mark.slow
@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("era", [*ERAS])
async def test_a_project_server_that_is_approved_or_revoked_reaches_open_sessions(era: str, tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"local": ENTRY}}))
    async with (
        running_gateway(tmp_path, servers={}) as gateway,
        connected(gateway, era) as (session, changes),
    ):
        before = await names_of(session)
        status = text_of(await session.call_tool("holdfast__status", {}))
        await answer(gateway, project, approved=True)
        await changes.wait_for(lambda: has(session, "add"))
        await session.call_tool("add", {})
        await answer(gateway, project, approved=False)
        await changes.wait_for(lambda: lacks(session, "add"))

    assert before == {"holdfast__status"}
    assert "Server local: not offered (admit)." in status


@pytest.mark.promise("GW-09")
@pytest.mark.parametrize("era", [*ERAS])
async def test_a_rule_that_is_added_or_removed_reaches_open_sessions(era: str, tmp_path: Path):
    configure(tmp_path, "counter")
    settings = tmp_path / "config.toml"
    settings.write_text("")
    environ = {"HOLDFAST_CONFIG": str(settings)}

    async def is_refused() -> bool:
        return bool((await session.call_tool("add", {})).is_error)

    async with (
        running_gateway(tmp_path, environ, servers={}) as gateway,
        connected(gateway, era) as (session, _),
        asyncio.timeout(30),
    ):
        at_first = await is_refused()
        settings.write_text('[permission]\ndeny = ["counter.add"]\n')
        while not await is_refused():
            await asyncio.sleep(0.01)
        settings.write_text("")
        while await is_refused():
            await asyncio.sleep(0.01)

    assert not at_first


@pytest.mark.promise("GW-04")
async def test_a_half_saved_file_takes_no_server_away_from_open_sessions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The control: an empty list takes its servers away."""
    configure(tmp_path, "first")
    file = tmp_path / "data" / "mcp.json"

    async with (
        running_gateway(tmp_path, servers={}) as gateway,
        connected(gateway, "handshake") as (session, changes),
        asyncio.timeout(30),
    ):
        await session.call_tool("add", {})
        file.write_text(file.read_text()[:-3])
        await changes.wait_for(lambda: has(session, "holdfast__status"))
        kept = await session.call_tool("add", {})
        status = text_of(await session.call_tool("holdfast__status", {}))
        configure(tmp_path)
        await changes.wait_for(lambda: lacks(session, "add"))

    assert kept.structured_content is not None
    assert kept.structured_content["count"] == 2  # the server was not restarted
    assert "It is not valid JSON" in status
    assert "Open sessions keep the servers that it last had" in status
    (warning,) = [record for record in caplog.records if "last had" in record.getMessage()]
    assert str(file) in warning.getMessage()


async def has(session: Client, name: str) -> bool:
    return name in await names_of(session)


async def lacks(session: Client, name: str) -> bool:
    return name not in await names_of(session)


async def answer(gateway: RunningGateway, project: Path, *, approved: bool) -> None:
    """Approve or revoke the project's server, as `holdfast servers` does."""
    entry = ServerEntry(
        name="local", source=Source.PROJECT, origin=str(project / ".mcp.json"), value=cast("Json", ENTRY)
    )
    approvals = gateway.host.approvals
    if approved:
        program = await approvals.read_program([sys.executable, str(COUNTER)], str(project))
        await approvals.approve_server(entry, by="ann", program=program)
    else:
        await approvals.revoke_server(entry.origin, entry.name, by="ann")
