"""Each refused server is reported at once and only once; a slow server does not delay the reports."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import cwd, home
from tests.journeys.editor import SHORT_WAIT, Editor, editor, tools_server

__all__ = ["cwd", "home"]

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-07")]

GONE: dict[str, Any] = {"name": "gone", "command": "/no/such/program", "args": [], "env": []}
EXITS: dict[str, Any] = {
    "name": "exits",
    "command": sys.executable,
    "args": ["-c", "raise SystemExit(7)"],
    "env": [],
}


async def new(zed: Editor, cwd: Path, *servers: Any) -> str:
    params = {"cwd": str(cwd), "mcpServers": [*servers]}
    return (await zed.request("session/new", params, checked=False))["sessionId"]


def reported(zed: Editor, session: str) -> list[str]:
    """The servers that the notices are about."""
    return [update["title"].partition(":")[0] for update in zed.updates(session, "notice")]


@pytest.mark.slow
async def test_refusals_are_reported_once_while_another_server_is_starting(home: Path, cwd: Path):
    async with editor(home, capabilities={"session": {"notices": {}}}, environ=SHORT_WAIT) as zed:
        await zed.request("session/list", {})  # waits until the process has loaded everything
        began = time.monotonic()
        session = await new(zed, cwd, 5, GONE, EXITS, tools_server("mute", "--mute"), tools_server())
        await zed.wait_until(lambda zed: len(reported(zed, session)) >= 3)
        seconds = time.monotonic() - began
        await zed.prompt(session, "/servers")
        await zed.request("session/close", {"sessionId": session})

        assert seconds < 10  # the mute server has 30 seconds to start
        assert sorted(reported(zed, session)) == ["Still starting", "exits", "gone", "mcpServers[0]"]


async def test_first_turn_names_the_starting_and_the_refused_servers(home: Path, cwd: Path):
    async with editor(home, environ=SHORT_WAIT) as zed:
        session = await new(zed, cwd, 5, EXITS, tools_server("mute", "--mute"))
        await zed.prompt(session, "/help")
        first = zed.reply_text(session)
        await zed.prompt(session, "/help")
        both = zed.reply_text(session)

        lines = [line.partition(":")[0] for line in first.splitlines() if line.startswith("- ")]
        assert sorted(lines) == ["- Still starting", "- exits", "- mcpServers[0]"]
        assert [both.count(f"{line}:") for line in lines] == [1, 1, 1]


async def test_notices_in_replies_are_for_one_editor_and_not_repeated_in_the_next_session(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        first = await new(zed, cwd, EXITS)
        await zed.prompt(first, "/help")
        second = await new(zed, cwd, EXITS, GONE)
        await zed.prompt(second, "/help")
        told = [zed.reply_text(session).count("- exits:") for session in (first, second)]
        new_one = zed.reply_text(second).count("- gone:")
        await zed.request("session/close", {"sessionId": first})
        zed.received.clear()
        await zed.request("session/load", {"sessionId": first, "cwd": str(cwd), "mcpServers": []})

        assert (told, new_one) == ([1, 0], 1)
        assert "/tools" in zed.reply_text(first), "the reply is stored"
        assert "exits" not in zed.reply_text(first), "the notice is not: attached terminals do not see it"


async def test_loaded_session_reports_its_refusals_once(home: Path, cwd: Path):
    async with editor(home, capabilities={"session": {"notices": {}}}) as zed:
        session = await new(zed, cwd, GONE)
        await zed.wait_until(lambda zed: reported(zed, session))
        await zed.request("session/close", {"sessionId": session})
        zed.received.clear()
        params: Any = {"sessionId": session, "cwd": str(cwd), "mcpServers": [GONE]}
        await zed.request("session/load", params)
        await zed.prompt(session, "/help")

        assert reported(zed, session) == ["gone"]
