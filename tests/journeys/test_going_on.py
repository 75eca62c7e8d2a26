"""A conversation that is taken up again: loaded, resumed, refused, or found cut off."""

import asyncio
import os
import platform
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.editor import HOLDFAST, Refused, editor, tools, words

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-13")]

AGENT = [sys.executable, str(Path(__file__).with_name("thinker.py"))]
OURS = "The session {} is open on this connection already: go on with it, or close it first."
SILENT = ("available_commands_update", "config_option_update")


@pytest.mark.promise("ACP-04")
async def test_load_replays_the_whole_conversation_in_order_and_answers_after_the_last(home: Path, cwd: Path):
    async with editor(home, command=AGENT) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, "first")
        await zed.prompt(session, "second", "and more")
        live = [update for update in zed.updates(session) if update["sessionUpdate"] not in SILENT]
    async with editor(home, command=AGENT) as zed:
        loading = zed.begin(
            "session/load", {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools("mute", "--mute")]}
        )
        loading.add_done_callback(lambda _: zed.heard.append((session, {"sessionUpdate": "answered"})))
        began = time.monotonic()
        await loading
        seconds = time.monotonic() - began
        await asyncio.sleep(0)
        replayed = [update for update in zed.updates(session) if update["sessionUpdate"] not in SILENT]
        await zed.until(lambda zed: zed.updates(session, "available_commands_update"))

    spoken = [
        update["content"]["text"] for update in replayed if update["sessionUpdate"] == "user_message_chunk"
    ]
    without = [update for update in replayed if update["sessionUpdate"] != "user_message_chunk"]
    assert spoken == ["first", "second", "and more"]
    assert without == [*live, {"sessionUpdate": "answered"}]
    assert seconds < 4.5  # it did not wait for a server that never comes
    assert {update["sessionUpdate"] for update in live} == {
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "session_info_update",
        "usage_update",
    }


@pytest.mark.promise("ACP-04")
async def test_what_is_asked_during_a_replay_waits_for_its_end(home: Path, cwd: Path):
    async with editor(home, command=AGENT) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, "first")
    async with editor(home, command=AGENT) as zed:
        params = {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools()]}
        loading, again = zed.begin("session/load", params), zed.begin("session/load", params)
        prompting = zed.begin_prompt(session, "second")
        ends = await asyncio.gather(loading, again, return_exceptions=True)
        with suppress(Refused):  # it came before the session was there
            await prompting
        kinds = [update["sessionUpdate"] for update in zed.updates(session)]

        (held,) = (end for end in ends if isinstance(end, Refused))
        assert (held.code, held.message) == (-32003, OURS.format(session))
        assert kinds[0] == "user_message_chunk"
        assert kinds.count("user_message_chunk") == 1


@pytest.mark.promise("ACP-05")
async def test_resume_replays_nothing_and_answers_when_a_prompt_can_be_taken(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, "/call tools.echo {}")
    async with editor(home) as zed:
        await zed.resume(session, cwd, tools("slow", "--slow"))
        await zed.until(lambda zed: zed.updates(session, "available_commands_update"))
        replayed = [update for update in zed.updates(session) if update["sessionUpdate"] not in SILENT]
        await zed.prompt(session, '/call slow.echo {"text": "up"}')

        assert replayed == []
        assert "slow.echo:\nup" in zed.said(session)
        assert "Still starting" not in zed.said(session)


@pytest.mark.promise("ACP-06", "STO-04")
async def test_only_an_unknown_session_is_not_found(home: Path, cwd: Path):
    other = cwd.parent / "other"
    other.mkdir()
    async with editor(home) as zed, editor(home) as vim:
        session = await zed.new(cwd)
        refusals: dict[str, Refused] = {}

        async def refused(name: str, method: str, **params: Any) -> None:
            asked: Any = {"sessionId": session, "cwd": str(cwd), "mcpServers": [], **params}
            with pytest.raises(Refused) as no:
                await vim.ask(method, asked)
            refusals[name] = no.value

        await refused("unknown", "session/load", sessionId="sess_00000000000000000000000000000000")
        await refused("no id", "session/resume", sessionId="../../etc/passwd")
        await refused("elsewhere", "session/load", cwd=str(other))
        await refused("held", "session/load")
        await refused("held, to close", "session/close")
        await refused("unknown, to close", "session/close", sessionId="sess_0")
        await refused("held, to delete", "session/delete")
        with pytest.raises(Refused) as ours:
            await zed.load(session, cwd)
        await zed.prompt(session, "/help")  # all that was refused changed nothing
        with pytest.raises(Refused) as not_open:
            await vim.ask("session/prompt", words(session, "hi"))
        zed.process.send_signal(signal.SIGKILL)
        await zed.gone()
        await vim.load(session, cwd)  # a dead owner's hold lapses at once

    codes = {name: error.code for name, error in refusals.items()}
    assert codes == {
        "unknown": -32002,
        "no id": -32002,
        "elsewhere": -32602,
        "held": -32003,
        "held, to close": -32003,
        "unknown, to close": -32002,
        "held, to delete": -32003,
    }
    assert refusals["unknown"].data == {
        "sessionId": "sess_00000000000000000000000000000000",
        "hint": "`holdfast sessions list` shows the sessions there are.",
    }
    assert refusals["elsewhere"].data == {
        "sessionId": session,
        "cwd": str(cwd),
        "hint": f"Open it in {cwd}, or move it: holdfast sessions move {session} {other}",
    }
    for name in ("held", "held, to close", "held, to delete"):
        assert refusals[name].data == {
            "sessionId": session,
            "pid": zed.process.pid,
            "machine": platform.node(),
            "hint": "Close the session where it is open; a process that is gone lets go of it by itself.",
        }
    assert (ours.value.code, ours.value.message) == (-32003, OURS.format(session))
    assert ours.value.data["sessionId"] == session
    assert f"holdfast sessions move {session} {other}" in refusals["elsewhere"].message
    assert not_open.value.code == -32602


@pytest.mark.promise("ACP-17", "STO-03")
async def test_the_mode_of_a_session_taken_up_again_is_the_one_it_was_left_in_even_by_a_kill(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        for mode in ("read-only", "auto"):
            await zed.ask("session/set_mode", {"sessionId": session, "modeId": mode})
        zed.process.kill()
        await zed.gone()
    async with editor(home) as zed:
        loaded = await zed.load(session, cwd, tools())
        told = [update["currentModeId"] for update in zed.updates(session, "current_mode_update")]
        await zed.prompt(session, "/call tools.count")
        await zed.ask("session/close", {"sessionId": session})
        resumed = await zed.resume(session, cwd, tools())

        assert [
            (answer["modes"]["currentModeId"], answer["configOptions"][0]["currentValue"])
            for answer in (loaded, resumed)
        ] == [("auto", "auto")] * 2
        assert told[-1] == "auto"
        assert ("tools.count:\n1" in zed.said(session), zed.asked) == (True, [])


@pytest.mark.promise("ACP-08", "ACP-10")
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_what_is_asked_about_a_session_at_once_is_done_in_order(home: Path, cwd: Path, method: str):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, "/help")
        named = {"sessionId": session}
        old: Any = {**named, "cwd": str(cwd), "mcpServers": [tools()]}

        went_on = await _all(
            zed.begin("session/close", named),
            zed.begin(method, old),
            zed.begin_prompt(session, '/call tools.echo {"text": "here"}'),
        )
        closed, opened = zed.begin("session/close", named), zed.begin(method, old)
        turn = zed.begin_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}"}}')
        zed.notify("session/cancel", named)
        cancelled = await _all(closed, opened, turn)
        twice = await _all(zed.begin("session/close", named), zed.begin(method, old), zed.begin(method, old))
        not_open = await _all(zed.begin("session/close", named), zed.begin_prompt(session, "Hello?"))
        deleted = await _all(
            zed.begin("session/delete", named), zed.begin(method, old), zed.begin("session/delete", named)
        )

        assert went_on == ["done", "done", "end_turn"]
        assert cancelled == ["done", "done", "cancelled"]
        assert twice == ["done", "done", -32003]
        assert not_open == ["done", -32602]
        assert deleted == ["done", -32002, "done"]
        assert ("here" in zed.said(session), (cwd / "one").exists()) == (True, False)


@pytest.mark.promise("ACP-08")
async def test_a_cancel_that_comes_before_anything_about_sessions_is_loaded_is_heard(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)
    async with editor(home) as zed:
        loaded = zed.begin("session/load", {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools()]})
        turn = zed.begin_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 3}}')
        zed.notify("session/cancel", {"sessionId": session})

        assert await _all(loaded, turn) == ["done", "cancelled"]


async def _all(*asked: "asyncio.Future[Any]") -> list[Any]:
    """How each was answered, in short."""
    answers: list[Any] = await asyncio.gather(*asked, return_exceptions=True)
    return [
        answer.code if isinstance(answer, Refused) else answer.get("stopReason", "done") for answer in answers
    ]


async def test_a_session_closed_while_it_is_taken_up_again_is_closed_and_said_to_be(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)
        await zed.ask("session/close", {"sessionId": session})
        mute: Any = {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools("mute", "--mute")]}
        resuming = zed.begin("session/resume", mute)
        await zed.until(lambda zed: len(zed.updates(session, "available_commands_update")) == 2)
        await zed.ask("session/close", {"sessionId": session})
        with pytest.raises(Refused) as closed:
            await resuming
        await zed.resume(session, cwd)

        assert closed.value.message == "The session was closed while it was opened again."
        assert closed.value.data["hint"] == "Send session/load or session/resume once more."


@pytest.mark.promise("STO-03")
async def test_a_turn_cut_off_by_a_kill_is_seen_as_interrupted_and_the_session_goes_on(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        turn = zed.begin_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}"}}')
        await zed.until(lambda zed: "in_progress" in dict(zed.called(session)).values())
        zed.process.kill()
        await zed.gone()
        with pytest.raises(ConnectionError):
            await turn
    async with editor(home) as zed:
        await zed.load(session, cwd, tools())
        replayed = [status for _, status in zed.called(session)]
        said = zed.said(session)
        after = await zed.prompt(session, '/call tools.echo {"text": "go on"}')

    assert replayed == ["pending", "in_progress", "failed"]
    assert said == "This turn was interrupted before it was over."
    assert after == "end_turn"


@pytest.mark.promise("ACP-14")
@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGINT"])
async def test_leaving_in_the_middle_of_a_turn_loses_no_event_and_leaves_no_process(
    home: Path, cwd: Path, how: str
):
    async with editor(home, command=AGENT if how == "end of input" else HOLDFAST) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 0}}')
        turn = zed.begin_prompt(session, f'/call tools.wait {{"started": "{cwd / "two"}"}}\n/tools')
        await zed.until(lambda zed: [status for _, status in zed.called(session)].count("in_progress") == 2)
        if how == "end of input":
            zed.stdin.close()
        else:
            zed.process.send_signal(getattr(signal, how))
        reason = (await turn)["stopReason"]
        code = await zed.gone()
        live = [update for update in zed.updates(session) if update["sessionUpdate"] not in SILENT]
    server = int((cwd / "one").read_text())
    async with editor(home) as zed:
        await zed.load(session, cwd)
        replayed = zed.updates(session)

    assert (reason, code) == ("cancelled", 0)
    assert not _runs(server)
    without = [
        update for update in replayed if update["sessionUpdate"] not in ("user_message_chunk", *SILENT)
    ]
    assert without == live


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
