"""A server that never answers costs a session a few seconds, once; and nobody who does not need it."""

import asyncio
import json
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest

from tests.journeys.editor import IMPATIENT, editor, tools
from tests.journeys.terminal import terminal
from tests.journeys.test_chat import READY

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-05", "ACP-07")]

MUTE = tools("mute", "--mute")
PATIENCE = 5
"""As docs/acp.md says."""
BESIDE = 4
"""What all the rest may take, on a busy machine."""


async def seconds(work: Awaitable[object]) -> float:
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def test_the_first_prompt_and_resume_wait_for_a_mute_server_for_five_seconds_and_once(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        old = await zed.new(cwd)
        await zed.ask("session/close", {"sessionId": old})
        listing, calling = await zed.new(cwd, MUTE), await zed.new(cwd, MUTE)
        first = await asyncio.gather(
            seconds(zed.prompt(listing, "/tools")),
            seconds(zed.prompt(calling, "/call nope.x {}")),
            seconds(zed.resume(old, cwd, MUTE)),
        )
        then = await asyncio.gather(
            seconds(zed.prompt(listing, "/tools mute")),
            seconds(zed.prompt(calling, "/call files.nothing {}")),
            seconds(zed.prompt(old, "/tools")),
        )

    assert [PATIENCE - 1 < took < PATIENCE + BESIDE for took in first] == [True] * 3, first
    assert [took < BESIDE for took in then] == [True] * 3, then
    for session in (listing, old):
        assert "- files.read" in zed.said(session)
        assert "Still starting, their tools come later: mute." in zed.said(session)
    assert "mute is still starting; its tools come later." in zed.said(listing)
    assert "There is no tool 'nope.x'. Still starting: mute." in zed.said(calling)


async def test_a_call_waits_for_its_own_server_while_it_starts(home: Path, cwd: Path):
    async with editor(home, environ={"HOLDFAST_LINKS_WAIT_SECONDS": "0"}) as zed:
        session = await zed.new(cwd, MUTE, tools("slow", "--slow"))
        turns = [
            zed.begin_prompt(session, f'/call {name} {{"text": "{name} is up"}}')
            for name in ("slow.echo", "slow__echo")
        ]
        await asyncio.gather(*turns)

        assert ["slow.echo is up" in zed.said(session), "slow__echo is up" in zed.said(session)] == [True] * 2


def test_a_chat_counts_and_completes_the_tools_of_those_that_stand_while_another_server_is_mute(
    home: Path, cwd: Path
):
    mute = {"command": MUTE["command"], "args": MUTE["args"]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"mute": mute}}))

    with terminal(home, cwd, environ=IMPATIENT) as screen:
        greeting = screen.until(READY)
        screen.type("/call files.li\t")
        screen.until("/call files.list")
        screen.line(" {}\n/tools")
        listed = screen.until("Still starting")
        screen.type("\x04")

    assert ("files (5 tools)" in greeting, "starting mute" in greeting) == (True, True)
    assert "- files.find" in listed
