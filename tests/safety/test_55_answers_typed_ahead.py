"""Attack 55: what the user typed before a question of the chat was shown answers the question."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from holdfast.cli.chat import input as input_module
from holdfast.cli.chat.input import Completions, TerminalInput
from tests.journeys.conftest import cwd, home
from tests.journeys.terminal import terminal

__all__ = ["cwd", "home"]

READY, QUESTION, NEW_LINE = "› ", "[r]eject? ", "\x1b\r"
# The permission of a call is checked once the file `ASK` exists, so that keys can be typed before the question is shown.
CHAT = """
import asyncio, os, sys
from holdfast.cli.app import main
from holdfast.cli.chat.input import TerminalInput
from holdfast.session.permission import PermissionPolicy

check = PermissionPolicy.check

async def check_later(self, *arguments, **options):
    while not os.path.exists(os.environ["ASK"]):
        await asyncio.sleep(0.01)
    return await check(self, *arguments, **options)

PermissionPolicy.check = check_later
if "CONTROL" in os.environ:
    TerminalInput._discard_keys = lambda self: None
sys.argv = ["holdfast", "chat"]
main()
"""


def write(name: str) -> str:
    return f'/call files.write {{"path": "{name}", "text": "x"}}'


@pytest.mark.slow
@pytest.mark.parametrize("is_control", [False, True], ids=["attack", "control"])
def test_only_an_answer_that_follows_the_question_counts(home: Path, cwd: Path, is_control: bool):
    ask = home / "ask"
    ask.touch()
    environ = {"ASK": str(ask), **({"CONTROL": "1"} if is_control else {})}

    with terminal(home, cwd, environ=environ, command=[sys.executable, "-c", CHAT]) as screen:

        def reject_if_asked() -> None:
            screen.until(QUESTION)
            if not is_control:
                screen.type("r\n")
            screen.until(READY)

        screen.until(READY)
        screen.type(f"{write('pasted')}\no\n")  # with the prompt, as a paste does
        reject_if_asked()

        screen.type(f"{write('first')}{NEW_LINE}{write('second')}\n")
        screen.until(QUESTION)
        screen.type("o\no\n")  # the answer to the first question, twice
        reject_if_asked()

        ask.unlink()
        screen.type(f"{write('early')}\n")
        screen.until("● files.write")
        screen.type("ooo\b\b\n")  # while no prompt is open: the terminal itself keeps it
        screen.until("o")
        ask.touch()
        reject_if_asked()

    written = sorted(os.listdir(cwd))
    if is_control:
        assert written == ["early", "first", "pasted", "second"]
    else:
        assert written in (["first"], ["second"])


@pytest.mark.anyio
async def test_half_typed_prompt_is_no_answer_and_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(input_module, "_create_output", DummyOutput)
    with create_pipe_input() as keys, create_app_session(input=keys):

        def read_keys(stays_raw: Callable[[], bool]) -> PipeInput:
            return keys

        monkeypatch.setattr(input_module, "_create_input", read_keys)
        terminal = TerminalInput([], lambda: Completions(commands={}, arguments={}))
        prompt = asyncio.create_task(terminal.read_prompt())
        keys.send_text("o")
        await until(lambda: terminal._prompts.default_buffer.text == "o")
        answer = asyncio.create_task(terminal.ask("May it run? "))
        await until(lambda: terminal._open is terminal._questions and terminal._questions.app.is_running)
        await until(lambda: not terminal._is_question_undrawn)
        keys.send_text("\r")
        answered = await answer
        await until(lambda: terminal._open is terminal._prompts and terminal._prompts.app.is_running)
        keys.send_text("k\r")

        assert (answered, await prompt) == ("", "ok")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
