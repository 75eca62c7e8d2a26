"""One session with two doors: an editor, and a terminal in another process."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run_holdfast
from tests.journeys.editor import (
    CAPABILITIES,
    Editor,
    RpcError,
    always_choose,
    editor,
    environment,
    tools_server,
)
from tests.journeys.terminal import PATIENCE, Terminal, terminal

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-01", "SES-03")]

HOLDFAST = [sys.executable, "-m", "holdfast"]
ATTACH = ["holdfast", "sessions", "attach"]
READY = "› "
QUESTION = "[r]eject? "
PERMISSION = "session/request_permission"
WRITE = '/call files.write {"path": "note", "text": "hi"}'
INVISIBLE = "\u202e\u200b"


def attached(home: Path, cwd: Path, session: str):
    return terminal(home, cwd, session, command=ATTACH)


async def asked(zed: Editor) -> None:
    await zed.wait_until(lambda it: any(method == PERMISSION for method, _ in it.agent_requests))


async def test_terminal_answers_the_question_of_an_editors_session(home: Path, cwd: Path):
    async with editor(home) as zed:
        zed.unanswered.add(PERMISSION)
        session = await zed.new(cwd)
        turn = zed.start_prompt(session, WRITE)
        await asked(zed)

        def answer() -> int:
            with attached(home, cwd, session) as screen:
                screen.until(QUESTION)
                screen.type("o\n")
                screen.until("✓")
                screen.until(READY)
                screen.type("\x04")
                return screen.end()

        assert await asyncio.to_thread(answer) == 0
        assert (await turn)["stopReason"] == "end_turn"
        assert (cwd / "note").read_text() == "hi"
        assert await zed.prompt(session, "/servers") == "end_turn"  # the session is still open


async def test_terminal_is_told_what_the_editor_answered(home: Path, cwd: Path):
    async with editor(home) as zed:
        # The reply to /help arrives in two pieces, because its end could begin this secret.
        session = await zed.new(cwd, tools_server(API_KEY="commands\n0123456789"))
        with attached(home, cwd, session) as screen:
            await asyncio.to_thread(screen.until, READY)
            zed.answers[PERMISSION] = lambda params: (
                screen.until(QUESTION),
                always_choose("allow_once")(params),
            )[1]
            await zed.prompt(session, WRITE)
            await asyncio.to_thread(screen.until, "answered elsewhere: allowed once")
            await asyncio.to_thread(screen.until, "✓")
            screen.type("half a prompt")
            await zed.prompt(session, "/help")
            await asyncio.to_thread(screen.until_anywhere, "list the commands\n")
            marked = [line for line in screen.shown.rstrip().splitlines()[:-1] if line.startswith(READY[0])]
    assert (cwd / "note").read_text() == "hi"
    assert [chunk["content"]["text"] for chunk in zed.updates(session, "agent_message_chunk")][
        -1
    ] == "commands\n"
    assert marked == [f"› {WRITE}", "› /help"], "no empty prompt is left on the screen"


async def test_terminal_with_an_open_prompt_answers_two_questions_at_once(home: Path, cwd: Path):
    (cwd / "plants").write_text("dry")
    edit = '/call files.edit {"path": "plants", "old": "dry", "new": "wet"}'
    async with editor(home) as zed:
        zed.unanswered.add(PERMISSION)
        session = await zed.new(cwd)
        with attached(home, cwd, session) as screen:
            await asyncio.to_thread(screen.until, READY)
            turn = zed.start_prompt(session, f"{WRITE}\n{edit}")
            for _ in range(2):
                await asyncio.to_thread(screen.until, QUESTION)
                screen.type("o\n")
            await turn
            await asyncio.to_thread(screen.until, READY)
            await zed.request("session/set_mode", {"sessionId": session, "modeId": "auto"})
            await asyncio.to_thread(screen.until, "mode is now auto")
            screen.type("/mode\n")
            await asyncio.to_thread(screen.until, "The mode is auto.")

    assert [(cwd / name).read_text() for name in ("note", "plants")] == ["hi", "wet"]


async def test_terminal_asks_about_an_editors_call_after_ctrl_c_cancelled_a_turn(home: Path, cwd: Path):
    async with editor(home) as zed:
        zed.unanswered.add(PERMISSION)
        session = await zed.new(cwd)
        with attached(home, cwd, session) as screen:
            await asyncio.to_thread(screen.until, READY)
            screen.type(f"{WRITE}\n")
            await asyncio.to_thread(screen.until, QUESTION)
            screen.type("\x03")
            await asyncio.to_thread(screen.until, "Cancelled.")
            await asyncio.to_thread(screen.until, READY)

            turn = zed.start_prompt(session, WRITE)
            await asyncio.to_thread(screen.until, QUESTION)
            screen.type("o\n")

            assert (await turn)["stopReason"] == "end_turn"
    assert (cwd / "note").read_text() == "hi"


async def test_terminal_cancels_the_turn_of_an_editor_and_is_told_that_a_question_is_withdrawn(
    home: Path, cwd: Path
):
    async with editor(home, capabilities={**CAPABILITIES, "elicitation": {"form": {}}}) as zed:
        session = await zed.new(cwd, tools_server("tools", "--handshake"))
        await zed.request("session/set_mode", {"sessionId": session, "modeId": "auto"})
        with attached(home, cwd, session) as screen:
            await asyncio.to_thread(screen.until, READY)
            screen.type("/stop\n")
            await asyncio.to_thread(screen.until, "No turn is running.")
            zed.answers["elicitation/create"] = lambda _: (
                screen.until("name (text): "),
                {"action": "accept", "content": {"name": "Ann"}},
            )[1]
            await zed.prompt(session, "/call tools.ask {}")
            await asyncio.to_thread(screen.until, "no longer asked: it was answered elsewhere")
            await asyncio.to_thread(screen.until, READY)
            turn = zed.start_prompt(session, f'/call tools.wait {{"started": "{cwd / "started"}"}}')
            await asyncio.to_thread(screen.until, "● tools.wait")
            await asyncio.to_thread(screen.until, READY)
            screen.type("/stop\n")

            assert (await turn)["stopReason"] == "cancelled"
            await asyncio.to_thread(screen.until, "Cancelled.")


@pytest.mark.promise("AUD-03")
async def test_prompts_of_the_terminal_are_shown_in_the_editor_and_kept_with_secrets_masked(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server(API_KEY="plants-0123456789"))

        def prompt() -> None:
            with attached(home, cwd, session) as screen:
                screen.until(READY)
                screen.line("/tools files")
                screen.until("files.write")
                screen.until(READY)
                screen.line("/why plants-0123456789")
                screen.until(READY)
                screen.type("\x04")
                assert screen.end() == 0

        await asyncio.to_thread(prompt)
        await zed.wait_until(lambda it: "files.write" in it.reply_text(session))

        prompts = [update["content"]["text"] for update in zed.updates(session, "user_message_chunk")]
        assert prompts == ["/tools files", "/why [masked]"]
    assert (home / "data" / "chat_history").read_text().splitlines() == prompts


async def test_terminal_shows_the_end_of_a_long_conversation_unless_asked_for_all(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)
        for number in range(20):
            await zed.prompt(session, f"/why number{number}.")

        def shown(*options: str) -> str:
            with terminal(home, cwd, session, *options, command=ATTACH) as screen:
                return screen.until("Attached to")

        recent, everything = [await asyncio.to_thread(shown, *options) for options in ((), ("--all",))]

    assert (
        "Earlier parts of the conversation are not shown. To print them: holdfast sessions replay" in recent
    )
    assert ("number0." in recent, "number19." in recent) == (False, True)
    assert "number0." in everything


async def test_terminal_that_is_killed_while_asked_changes_nothing_for_the_editor(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)

        def kill_when_asked(screen: Terminal) -> None:
            screen.until(QUESTION)
            screen.process.kill()
            screen.process.wait()

        with attached(home, cwd, session) as screen:
            await asyncio.to_thread(screen.until, READY)
            zed.answers[PERMISSION] = lambda params: (
                kill_when_asked(screen),
                always_choose("allow_once")(params),
            )[1]
            assert await zed.prompt(session, WRITE) == "end_turn"

    assert (cwd / "note").read_text() == "hi"


@pytest.mark.promise("ACP-04", "ACP-06")
async def test_editor_loads_a_session_that_another_editors_process_has_open(home: Path, cwd: Path):
    async with editor(home) as zed, editor(home) as vim:
        session = await zed.new(cwd)
        zed.unanswered.add(PERMISSION)
        turn = zed.start_prompt(session, WRITE)
        await asked(zed)
        await vim.load(session, cwd)  # the question is open, and vim answers it
        ended = await turn
        await vim.wait_until(lambda it: it.call_statuses(session) == zed.call_statuses(session))
        await vim.prompt(session, "/servers")
        await zed.wait_until(lambda it: it.updates(session, "user_message_chunk"))

        assert (ended["stopReason"], (cwd / "note").read_text()) == ("end_turn", "hi")
        shown = [
            [update["content"]["text"] for update in it.updates(session, "user_message_chunk")]
            for it in (zed, vim)
        ]
        assert shown == [["/servers"], [WRITE]]
        await zed.wait_until(lambda it: it.reply_text(session) == vim.reply_text(session))


async def test_editor_continues_a_session_whose_process_was_killed(home: Path, cwd: Path):
    started = cwd / "started"
    async with editor(home) as vim:
        async with editor(home) as zed:
            session = await zed.new(cwd, tools_server())
            await zed.prompt(session, "/call tools.echo {}")
            await vim.load(session, cwd)
            turn = vim.start_prompt(session, f'/call tools.wait {{"started": "{started}"}}')
            await vim.wait_until(lambda it: "in_progress" in dict(it.call_statuses(session)).values())
            zed.process.kill()
            await zed.process.wait()
            with pytest.raises(RpcError) as lost:
                await turn
        with pytest.raises(RpcError) as not_open:
            await vim.prompt(session, "/help")
        vim.received.clear()
        await vim.load(session, cwd)

        assert (lost.value.code, not_open.value.code) == (-32005, -32602)
        assert f"was open in process {zed.process.pid} " in lost.value.message
        assert len(vim.updates(session, "user_message_chunk")) == 2
        assert [status for _, status in vim.call_statuses(session)][-1] == "failed"
        assert await vim.prompt(session, "/help") == "end_turn"


async def test_editor_that_is_killed_changes_nothing_for_the_process_that_has_the_session(
    home: Path, cwd: Path
):
    async with editor(home) as zed:
        session = await zed.new(cwd)
        zed.unanswered.add(PERMISSION)
        async with editor(home) as vim:
            vim.unanswered.add(PERMISSION)
            await vim.load(session, cwd)
            vim.start_prompt(session, WRITE).add_done_callback(lambda turn: turn.exception())
            await asyncio.gather(asked(zed), asked(vim))
            vim.process.kill()
            await vim.process.wait()
        turn = zed.start_prompt(session, "/servers")
        zed.notify("session/cancel", {"sessionId": session})  # vim's turn went on, and waits for an answer

        assert (await turn)["stopReason"] == "cancelled"
        assert await zed.prompt(session, "/servers") == "end_turn"


async def test_watch_prints_the_events_until_the_session_is_closed(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)
        watching = await asyncio.create_subprocess_exec(
            *HOLDFAST,
            *("sessions", "watch", session, "--json"),
            stdout=asyncio.subprocess.PIPE,
            env=environment(home),
        )
        assert watching.stdout is not None
        first = json.loads(await watching.stdout.readline())
        await zed.prompt(session, f"/servers {INVISIBLE}")
        await zed.request("session/close", {"sessionId": session})
        rest, _ = await watching.communicate()

    events = [first, *map(json.loads, rest.splitlines())]
    kinds = [event["kind"] for event in events]
    prompt = next(event["event"] for event in events if event["kind"] == "prompted")
    assert (kinds[0], kinds[-1], watching.returncode) == ("session_opened", "session_closed", 0)
    assert "turn_ended" in kinds
    assert INVISIBLE not in rest.decode(), "a terminal could hide it"
    assert prompt["blocks"] == [{"type": "text", "text": f"/servers {INVISIBLE}"}]


@pytest.mark.parametrize("command", ["attach", "watch"])
def test_session_that_is_not_open_says_how_to_open_it(home: Path, cwd: Path, command: str):
    _run(home, cwd, "chat", text="/servers\n")
    session = json.loads(_run(home, cwd, "sessions", "list", "--json").stdout.splitlines()[0])

    refused = _run(home, cwd, "sessions", command, session["id"])

    assert (refused.returncode, "holdfast chat --resume" in refused.stderr) == (1, True)


def _run(home: Path, cwd: Path, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return run_holdfast(*arguments, cwd=cwd, env=environment(home), input=text, timeout=PATIENCE)
