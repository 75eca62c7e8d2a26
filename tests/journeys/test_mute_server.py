"""A server that never answers delays a session by a few seconds, once, and only calls that need it."""

import asyncio
import json
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest

from tests.journeys.editor import SHORT_WAIT, editor, tools_server
from tests.journeys.terminal import terminal
from tests.journeys.test_chat import READY

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-05", "ACP-07")]

MUTE = tools_server("mute", "--mute")
WAIT_SECONDS = 5
"""As documented in docs/acp.md."""
OVERHEAD_SECONDS = 4
"""What everything else may take on a busy machine."""


async def seconds(work: Awaitable[object]) -> float:
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def test_first_prompt_and_resume_wait_five_seconds_once_for_a_mute_server(home: Path, cwd: Path):
    async with editor(home) as zed:
        old = await zed.new(cwd)
        await zed.request("session/close", {"sessionId": old})
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

    assert [WAIT_SECONDS - 1 < took < WAIT_SECONDS + OVERHEAD_SECONDS for took in first] == [True] * 3, first
    assert [took < OVERHEAD_SECONDS for took in then] == [True] * 3, then
    for session in (listing, old):
        assert "- files.read" in zed.reply_text(session)
        assert "Still starting: mute. Their tools are not listed yet." in zed.reply_text(session)
    assert "mute is still starting; its tools are not known yet." in zed.reply_text(listing)
    assert "There is no tool 'nope.x'. Still starting: mute." in zed.reply_text(calling)


async def test_call_waits_only_for_its_own_server(home: Path, cwd: Path):
    async with editor(home, environ={"HOLDFAST_LINKS_WAIT_SECONDS": "0"}) as zed:
        session = await zed.new(cwd, MUTE, tools_server("slow", "--slow"))
        turns = [
            zed.start_prompt(session, f'/call {name} {{"text": "{name} is up"}}')
            for name in ("slow.echo", "slow__echo")
        ]
        await asyncio.gather(*turns)

        assert [
            "slow.echo is up" in zed.reply_text(session),
            "slow__echo is up" in zed.reply_text(session),
        ] == [True] * 2


def test_chat_counts_and_completes_the_available_tools_while_another_server_is_mute(home: Path, cwd: Path):
    mute = {"command": MUTE["command"], "args": MUTE["args"]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"mute": mute}}))

    with terminal(home, cwd, environ=SHORT_WAIT) as screen:
        greeting = screen.until(READY)
        screen.type("/call files.li\t")
        screen.until("/call files.list")
        screen.line(" {}\n/tools")
        listed = screen.until("Still starting")
        screen.type("\x04")

    assert ("files (5 tools)" in greeting, "starting mute" in greeting) == (True, True)
    assert "- files.find" in listed
