"""Reopening a session: loaded, resumed, refused, or found interrupted."""

import asyncio
import os
import platform
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.remote.sockets import SOCKETS_FOLDER
from tests.journeys.editor import HOLDFAST, RpcError, editor, prompt_params, tools_server

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-13")]

AGENT = ["-m", "tests.journeys.sample_agent"]
ALREADY_OPEN = "The session {} is already open on this connection."
NOT_REPLAYED = ("available_commands_update", "config_option_update")


@pytest.mark.slow
@pytest.mark.promise("ACP-04")
async def test_load_replays_the_whole_conversation_in_order_then_answers(home: Path, cwd: Path):
    async with editor(home, command=AGENT) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, "first")
        await zed.prompt(session, "second", "and more")
        live = [update for update in zed.updates(session) if update["sessionUpdate"] not in NOT_REPLAYED]
    async with editor(home, command=AGENT) as zed:
        loading = zed.start_request(
            "session/load",
            {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools_server("mute", "--mute")]},
        )
        loading.add_done_callback(lambda _: zed.received.append((session, {"sessionUpdate": "answered"})))
        began = time.monotonic()
        await loading
        seconds = time.monotonic() - began
        await asyncio.sleep(0)
        replayed = [update for update in zed.updates(session) if update["sessionUpdate"] not in NOT_REPLAYED]
        await zed.wait_until(lambda zed: zed.updates(session, "available_commands_update"))

    prompts = [
        update["content"]["text"] for update in replayed if update["sessionUpdate"] == "user_message_chunk"
    ]
    others = [update for update in replayed if update["sessionUpdate"] != "user_message_chunk"]
    assert prompts == ["first", "second", "and more"]
    assert others == [*live, {"sessionUpdate": "answered"}]
    assert seconds < 4.5  # load does not wait for the mute server
    assert {update["sessionUpdate"] for update in live} == {
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "session_info_update",
        "usage_update",
    }


@pytest.mark.slow
@pytest.mark.promise("ACP-04")
async def test_requests_during_a_replay_wait_for_its_end(home: Path, cwd: Path):
    async with editor(home, command=AGENT) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, "first")
    async with editor(home, command=AGENT) as zed:
        params = {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools_server()]}
        loading, again = zed.start_request("session/load", params), zed.start_request("session/load", params)
        prompting = zed.start_prompt(session, "second")
        ends = await asyncio.gather(loading, again, return_exceptions=True)
        with suppress(RpcError):  # if it came before the session was open
            await prompting
        kinds = [update["sessionUpdate"] for update in zed.updates(session)]

        (held,) = (end for end in ends if isinstance(end, RpcError))
        assert (held.code, held.message) == (-32003, ALREADY_OPEN.format(session))
        assert kinds[0] == "user_message_chunk"
        assert kinds.count("user_message_chunk") == 1


@pytest.mark.promise("ACP-05")
async def test_resume_replays_nothing_and_answers_when_the_servers_are_available(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, "/call tools.echo {}")
    async with editor(home) as zed:
        await zed.resume(session, cwd, tools_server("slow", "--slow"))
        await zed.wait_until(lambda zed: zed.updates(session, "available_commands_update"))
        replayed = [update for update in zed.updates(session) if update["sessionUpdate"] not in NOT_REPLAYED]
        await zed.prompt(session, '/call slow.echo {"text": "up"}')

        assert replayed == []
        assert "slow.echo:\nup" in zed.reply_text(session)
        assert "Still starting" not in zed.reply_text(session)


@pytest.mark.promise("ACP-06", "STO-04")
async def test_only_an_unknown_session_is_reported_as_not_found(home: Path, cwd: Path):
    other = cwd.parent / "other"
    other.mkdir()
    async with editor(home) as zed, editor(home) as vim:
        session = await zed.new(cwd)
        refusals: dict[str, RpcError] = {}

        async def refused(name: str, method: str, **params: Any) -> None:
            request: Any = {"sessionId": session, "cwd": str(cwd), "mcpServers": [], **params}
            with pytest.raises(RpcError) as error:
                await vim.request(method, request)
            refusals[name] = error.value

        await refused("unknown", "session/load", sessionId="sess_00000000000000000000000000000000")
        await refused("no id", "session/resume", sessionId="../../etc/passwd")
        await refused("elsewhere", "session/load", cwd=str(other))
        for socket in (home / "data" / SOCKETS_FOLDER).iterdir():
            socket.unlink()  # the owner cannot be reached, so vim cannot be attached
        await refused("held", "session/load")
        await refused("held, to close", "session/close")
        await refused("unknown, to close", "session/close", sessionId="sess_0")
        await refused("held, to delete", "session/delete")
        with pytest.raises(RpcError) as already_open:
            await zed.load(session, cwd)
        await zed.prompt(session, "/help")  # the refused requests changed nothing
        with pytest.raises(RpcError) as not_open:
            await vim.request("session/prompt", prompt_params(session, "hi"))
        zed.process.send_signal(signal.SIGKILL)
        await zed.wait_ended()
        await vim.load(session, cwd)  # the lease of a dead process has no effect

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
        "hint": "`holdfast sessions list --all` shows all sessions.",
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
            "hint": "Close the session where it is open. A process that has ended releases its sessions.",
        }
    assert (already_open.value.code, already_open.value.message) == (-32003, ALREADY_OPEN.format(session))
    assert already_open.value.data["sessionId"] == session
    assert already_open.value.data["hint"] == "Use it, or send session/close first."
    assert f"holdfast sessions move {session} {other}" in refusals["elsewhere"].message
    assert not_open.value.code == -32602


@pytest.mark.promise("ACP-17", "STO-03")
async def test_mode_is_restored_even_after_a_kill(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        for mode in ("read-only", "auto"):
            await zed.request("session/set_mode", {"sessionId": session, "modeId": mode})
        zed.process.kill()
        await zed.wait_ended()
    async with editor(home) as zed:
        loaded = await zed.load(session, cwd, tools_server())
        modes = [update["currentModeId"] for update in zed.updates(session, "current_mode_update")]
        await zed.prompt(session, "/call tools.count")
        await zed.request("session/close", {"sessionId": session})
        resumed = await zed.resume(session, cwd, tools_server())

        assert [
            (answer["modes"]["currentModeId"], answer["configOptions"][0]["currentValue"])
            for answer in (loaded, resumed)
        ] == [("auto", "auto")] * 2
        assert modes[-1] == "auto"
        assert ("tools.count:\n1" in zed.reply_text(session), zed.agent_requests) == (True, [])


@pytest.mark.slow
@pytest.mark.promise("ACP-08", "ACP-10")
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_concurrent_requests_about_a_session_run_in_order(home: Path, cwd: Path, method: str):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, "/help")
        params = {"sessionId": session}
        reopen: Any = {**params, "cwd": str(cwd), "mcpServers": [tools_server()]}

        continued = await _results(
            zed.start_request("session/close", params),
            zed.start_request(method, reopen),
            zed.start_prompt(session, '/call tools.echo {"text": "here"}'),
        )
        closed, opened = zed.start_request("session/close", params), zed.start_request(method, reopen)
        turn = zed.start_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}"}}')
        zed.notify("session/cancel", params)
        cancelled = await _results(closed, opened, turn)
        twice = await _results(
            zed.start_request("session/close", params),
            zed.start_request(method, reopen),
            zed.start_request(method, reopen),
        )
        not_open = await _results(
            zed.start_request("session/close", params), zed.start_prompt(session, "Hello?")
        )
        deleted = await _results(
            zed.start_request("session/delete", params),
            zed.start_request(method, reopen),
            zed.start_request("session/delete", params),
        )

        assert continued == ["done", "done", "end_turn"]
        assert cancelled == ["done", "done", "cancelled"]
        assert twice == ["done", "done", -32003]
        assert not_open == ["done", -32602]
        assert deleted == ["done", -32002, "done"]
        assert ("here" in zed.reply_text(session), (cwd / "one").exists()) == (True, False)


@pytest.mark.promise("ACP-08")
async def test_cancel_that_arrives_while_the_process_is_still_loading_takes_effect(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)
    async with editor(home) as zed:
        loaded = zed.start_request(
            "session/load", {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools_server()]}
        )
        turn = zed.start_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 3}}')
        zed.notify("session/cancel", {"sessionId": session})

        assert await _results(loaded, turn) == ["done", "cancelled"]


async def _results(*requests: "asyncio.Future[Any]") -> list[Any]:
    """The stop reason, `done` or error code of each request."""
    answers: list[Any] = await asyncio.gather(*requests, return_exceptions=True)
    return [
        answer.code if isinstance(answer, RpcError) else answer.get("stopReason", "done")
        for answer in answers
    ]


async def test_session_closed_while_it_is_resumed_stays_closed_and_resume_fails(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)
        await zed.request("session/close", {"sessionId": session})
        mute: Any = {"sessionId": session, "cwd": str(cwd), "mcpServers": [tools_server("mute", "--mute")]}
        resuming = zed.start_request("session/resume", mute)
        await zed.wait_until(lambda zed: len(zed.updates(session, "available_commands_update")) == 2)
        await zed.request("session/close", {"sessionId": session})
        with pytest.raises(RpcError) as closed:
            await resuming
        await zed.resume(session, cwd)

        assert closed.value.message == "The session was closed while it was being reopened."
        assert closed.value.data["hint"] == "Send session/load or session/resume again."


@pytest.mark.promise("STO-03")
async def test_killed_turn_is_shown_as_interrupted_and_the_session_works(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        turn = zed.start_prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}"}}')
        await zed.wait_until(lambda zed: "in_progress" in dict(zed.call_statuses(session)).values())
        zed.process.kill()
        await zed.wait_ended()
        with pytest.raises(ConnectionError):
            await turn
    async with editor(home) as zed:
        await zed.load(session, cwd, tools_server())
        replayed = [status for _, status in zed.call_statuses(session)]
        reply = zed.reply_text(session)
        after = await zed.prompt(session, '/call tools.echo {"text": "go on"}')

    assert replayed == ["pending", "in_progress", "failed"]
    assert reply == "This turn was interrupted before it ended."
    assert after == "end_turn"


@pytest.mark.slow
@pytest.mark.promise("ACP-14")
@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGINT"])
async def test_disconnect_or_signal_during_a_turn_loses_no_event_and_leaves_no_process(
    home: Path, cwd: Path, how: str
):
    async with editor(home, command=AGENT if how == "end of input" else HOLDFAST) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, f'/call tools.wait {{"started": "{cwd / "one"}", "seconds": 0}}')
        turn = zed.start_prompt(session, f'/call tools.wait {{"started": "{cwd / "two"}"}}\n/tools')
        await zed.wait_until(
            lambda zed: [status for _, status in zed.call_statuses(session)].count("in_progress") == 2
        )
        if how == "end of input":
            zed.stdin.close()
        else:
            zed.process.send_signal(getattr(signal, how))
        reason = (await turn)["stopReason"]
        code = await zed.wait_ended()
        live = [update for update in zed.updates(session) if update["sessionUpdate"] not in NOT_REPLAYED]
    server = int((cwd / "one").read_text())
    async with editor(home) as zed:
        await zed.load(session, cwd)
        replayed = zed.updates(session)

    assert (reason, code) == ("cancelled", 0)
    assert not _is_running(server)
    others = [
        update for update in replayed if update["sessionUpdate"] not in ("user_message_chunk", *NOT_REPLAYED)
    ]
    assert others == live


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
