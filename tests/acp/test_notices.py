"""Who has fallen is told as it falls: one slow server delays nobody's news, and no news comes twice."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import cwd, home
from tests.journeys.editor import IMPATIENT, Editor, editor, tools

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
    return (await zed.ask("session/new", params, checked=False))["sessionId"]


def told(zed: Editor, session: str) -> list[str]:
    """Whom the notices are about."""
    return [update["title"].partition(":")[0] for update in zed.updates(session, "notice")]


async def test_refusals_are_told_while_another_server_is_still_starting_and_once(home: Path, cwd: Path):
    async with editor(home, capabilities={"session": {"notices": {}}}, environ=IMPATIENT) as zed:
        await zed.ask("session/list", {})  # what every session needs is loaded
        began = time.monotonic()
        session = await new(zed, cwd, 5, GONE, EXITS, tools("mute", "--mute"), tools())
        await zed.until(lambda zed: len(told(zed, session)) >= 3)
        seconds = time.monotonic() - began
        await zed.prompt(session, "/servers")
        await zed.ask("session/close", {"sessionId": session})

        assert seconds < 10  # the mute one gets 30 to answer in
        assert sorted(told(zed, session)) == ["Still starting", "exits", "gone", "mcpServers[0]"]


async def test_the_first_turn_says_who_is_starting_and_who_has_fallen_by_then(home: Path, cwd: Path):
    async with editor(home, environ=IMPATIENT) as zed:
        session = await new(zed, cwd, 5, EXITS, tools("mute", "--mute"))
        await zed.prompt(session, "/help")
        first = zed.said(session)
        await zed.prompt(session, "/help")
        both = zed.said(session)

        lines = [line.partition(":")[0] for line in first.splitlines() if line.startswith("- ")]
        assert sorted(lines) == ["- Still starting", "- exits", "- mcpServers[0]"]
        assert [both.count(f"{line}:") for line in lines] == [1, 1, 1]


async def test_a_session_that_is_loaded_tells_its_refusals_once_as_well(home: Path, cwd: Path):
    async with editor(home, capabilities={"session": {"notices": {}}}) as zed:
        session = await new(zed, cwd, GONE)
        await zed.until(lambda zed: told(zed, session))
        await zed.ask("session/close", {"sessionId": session})
        zed.heard.clear()
        params: Any = {"sessionId": session, "cwd": str(cwd), "mcpServers": [GONE]}
        await zed.ask("session/load", params)
        await zed.prompt(session, "/help")

        assert told(zed, session) == ["gone"]
