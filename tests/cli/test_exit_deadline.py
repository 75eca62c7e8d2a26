"""The process ends even if an agent keeps its session from being closed."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.exit_deadline import ExitDeadline
from tests.journeys.conftest import cwd, home
from tests.journeys.editor import environment

__all__ = ["cwd", "home"]

# An agent that ignores every cancellation.
STUCK = """
import asyncio, sys
from holdfast.agent.slash_commands import SlashCommandAgent
from holdfast.cli import exit_deadline
from holdfast.cli.app import main

async def run_turn(self, blocks, turn):
    print("started", file=sys.stderr, flush=True)
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

SlashCommandAgent.run_turn = run_turn
exit_deadline.EXIT_SECONDS = float(sys.argv.pop(1))
sys.argv[0] = "holdfast"
main()
"""
SECONDS = 0.4
MESSAGE = f"Holdfast did not exit within {SECONDS} s, so the process was killed. Everything that was stored is safe.\n"


def acp_line(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}) + "\n"


def start_turn(process: "subprocess.Popen[str]", command: str, cwd: Path) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    if command == "acp":
        process.stdin.write(acp_line("initialize", protocolVersion=1, clientCapabilities={}))
        process.stdin.write(acp_line("session/new", cwd=str(cwd), mcpServers=[]))
        process.stdin.flush()
        answers = (json.loads(line).get("result", {}) for line in process.stdout)
        session = next(answer["sessionId"] for answer in answers if "sessionId" in answer)
        prompt = [{"type": "text", "text": "go"}]
        process.stdin.write(acp_line("session/prompt", sessionId=session, prompt=prompt))
    else:
        process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["acp", "chat"])
def test_process_ends_although_an_agent_ignores_its_cancellation(home: Path, cwd: Path, command: str):
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, str(SECONDS), command],
        cwd=cwd,
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            start_turn(process, command, cwd)
            while process.stderr.readline() != "started\n":
                pass
            process.terminate()
            with pytest.raises(subprocess.TimeoutExpired):  # the control: it does not end by itself
                process.wait(SECONDS / 2)
            code = process.wait(20)
        finally:
            process.kill()
        said = process.stderr.read()

    assert (code, MESSAGE in said) == (1, True)


def test_deadline_is_cancelled_when_the_process_ends_in_time():
    before = threading.active_count()

    with ExitDeadline() as deadline:
        deadline.start()
        deadline.start()
        during = threading.active_count()

    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(10)
    assert (during, threading.active_count()) == (before + 1, before)
