"""Attack 31, at the store's boundary: a server puts its secret into every field that it can send."""

import io
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast import log_output
from holdfast.agent.agent import Command, TurnContext
from holdfast.host import approvals
from holdfast.host.data_folder import DATABASE_FILE
from holdfast.host.host import Host
from holdfast.masking import events
from holdfast.masking.mask import Mask
from holdfast.model.event import StopReason, ToolCalled
from holdfast.model.json import JsonObject
from holdfast.wire.mcp.tools import Tool
from tests.connect.conftest import HostFactory, make_host
from tests.session.support import text_prompt

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

SECRET = "canary7tok3nZq9XwV5u"
SERVERS = {
    "leaky": {
        "command": sys.executable,
        "args": ["-I", "-S", str(Path(__file__).with_name("leaky_fields_server.py"))],
        "env": {"API_TOKEN": SECRET},
    }
}


class CallingAgent:
    """Calls tools by names that contain the secret, plans and thinks with it."""

    commands: tuple[Command, ...] = ()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        for name in ("leaky.query", f"leaky.{SECRET}", f"leaky.none{SECRET}", f"{SECRET}.none"):
            await turn.call(name, {"x": SECRET})
        await turn.call("leaky.query", {"fail": 1})
        return StopReason.END_TURN


@pytest.mark.promise("AUD-03")
async def test_secret_in_any_field_is_in_no_column_of_the_store(make_host: HostFactory, tmp_path: Path):
    log = await _run(make_host, tmp_path)

    assert _columns_with_the_secret(tmp_path / "data" / DATABASE_FILE) == set()
    assert SECRET.encode() not in _all_files(tmp_path / "data") + log.encode()


async def test_control_without_masking_names_and_definitions_they_are_stored(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def keep_name(name: str, mask: Mask) -> str:
        return name

    def keep_definition(definition: Tool, mask: Mask) -> Tool:
        return definition

    def keep_names(event: ToolCalled, mask: Mask) -> ToolCalled:
        return event

    monkeypatch.setattr(approvals, "_stored_name", keep_name)
    monkeypatch.setattr(approvals, "mask_definition", keep_definition)
    monkeypatch.setattr(events, "_mask_tool_name", keep_names)

    await _run(make_host, tmp_path)

    assert _columns_with_the_secret(tmp_path / "data" / DATABASE_FILE) == {"approvals.what", "events.body"}


async def test_tool_whose_name_contains_a_secret_stays_pinned(make_host: HostFactory, tmp_path: Path):
    offered, stored = list[list[str]](), list[Tool | None]()
    for _ in range(2):
        async with make_host(SERVERS, durable=True) as host, host.session(cwd=tmp_path) as session:
            offered.append([tool.name for tool in await session.tools() if tool.name.startswith("leaky")])
            assert session.awaiting_approval.get("leaky", ()) == ()
            stored.append(await host.approvals.last_definition(session.server("leaky"), SECRET))

    assert offered == [["leaky.query", f"leaky.{SECRET}"]] * 2
    assert [definition and definition.title for definition in stored] == ["Query [masked]"] * 2


async def _run(make_host: HostFactory, folder: Path) -> str:
    """Run a session in which the server sends its secret in every field. Return the log."""
    stream = io.StringIO()
    log_output.configure("debug", "json", stream)
    try:
        async with make_host(SERVERS, durable=True, HOLDFAST_AUDIT_ARGUMENTS="true") as host:
            await _run_session(host, folder)
    finally:
        log_output.configure("info", "auto")
    return stream.getvalue()


async def _run_session(host: Host, folder: Path) -> None:
    async with host.session(cwd=folder) as session:
        assert f"leaky.{SECRET}" in [tool.name for tool in await session.tools()]
        await session.call(f"leaky.{SECRET}", {"x": SECRET})
        session.agent = CallingAgent()
        await session.prompt(text_prompt(f"use {SECRET}"))


def _columns_with_the_secret(database: Path) -> set[str]:
    connection = sqlite3.connect(database)
    try:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            f"{table}.{column[1]}"
            for table in tables
            for column in connection.execute(f'PRAGMA table_info("{table}")')
            for (value,) in connection.execute(f'SELECT "{column[1]}" FROM "{table}"')
            if SECRET.encode() in (value if isinstance(value, bytes) else str(value).encode())
        }
    finally:
        connection.close()


def _all_files(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
