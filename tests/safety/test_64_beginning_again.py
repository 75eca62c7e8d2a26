"""Attack 64: a client of `holdfast mcp` sends `initialize` many times at once, and each opens a session with its servers."""

import asyncio
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.gateway.credential import LOCAL
from holdfast.gateway.options import GatewayOptions, SessionSummary
from holdfast.gateway.stdio import StdioClient
from holdfast.host.host import Host
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.peer import Peer

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-02")]

TIMES = 10
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "impatient", "version": "1"},
}


async def open_after_beginning_again(folder: Path, *, at_once: bool) -> int:
    """How many sessions are open when all requests are answered."""
    folder.mkdir()
    opened: set[str] = set()

    def on_change(session: SessionSummary) -> None:
        (opened.discard if session.ended else opened.add)(session.session_id)

    editor = Peer()
    environ = {"HOME": str(folder), "HOLDFAST_DATA_DIR": str(folder / "data")}
    async with Host(settings=settings.load(environ=environ), servers={}) as host:
        client = StdioClient(host, LOCAL, GatewayOptions(cwd=folder, on_change=on_change))
        async with connect_memory(editor, client.peer):
            requests = [editor.request("initialize", INITIALIZE) for _ in range(TIMES)]
            if at_once:
                await asyncio.gather(*requests, return_exceptions=True)
            else:
                for request in requests:
                    await request
        found = len(opened)
        await client.close()
    return found


async def test_only_the_last_session_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = [
        await open_after_beginning_again(tmp_path / str(at_once), at_once=at_once)
        for at_once in (False, True)
    ]

    async def leave_open(self: object, reason: str) -> None:
        """Do not close the session."""

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.gateway.client_session.ClientSession.close", leave_open)
        control = await open_after_beginning_again(tmp_path / "control", at_once=True)

    assert found == [1, 1]
    assert control == TIMES
