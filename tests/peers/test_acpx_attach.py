"""The real `acpx` and a terminal on one session: `acpx` runs `holdfast acp`, and `holdfast sessions attach` joins it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.editor import editor, environment
from tests.journeys.terminal import PATIENCE, Terminal, terminal
from tests.peers.test_acp_clients import _servers as add_tools_server
from tests.peers.test_acp_clients import _wait_ended as wait_ended
from tests.peers.test_acp_clients import acpx, check_recordings, run

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-01", "SES-03")]

HOLDFAST = [sys.executable, "-m", "holdfast"]
ASKED_BY_ACPX = "(y/N)"
ASKED_BY_TERMINAL = "[r]eject?"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    add_tools_server(tmp_path)
    return folder


def writes(folder: Path, *names: str) -> str:
    """A prompt that writes these files. The user is asked about one after another."""
    calls = (f"/call tools.write {json.dumps({'path': str(folder / name), 'text': name})}" for name in names)
    return "\n".join(calls)


def attached(home: Path, folder: Path):
    """A terminal that is attached to the latest session."""
    listed = subprocess.run(
        [*HOLDFAST, "sessions", "list", "--json"],
        env=environment(home),
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    session = json.loads(listed.stdout.splitlines()[0])["id"]
    return terminal(home, folder, session, command=[*HOLDFAST, "sessions", "attach"])


def running_acpx(home: Path, folder: Path, prompt: str):
    """`acpx` at a terminal of its own, so that it asks its user."""
    command = acpx(home, "exec", prompt)
    return terminal(home, folder, command=command, environ={"HOME": str(home)})


@pytest.mark.slow
def test_question_is_answered_by_either_and_either_can_be_killed(tmp_path: Path, project: Path):
    with running_acpx(tmp_path, project, writes(project, "one", "two", "three", "four")) as client:
        client.until(ASKED_BY_ACPX)
        with attached(tmp_path, project) as screen:
            screen.until(ASKED_BY_TERMINAL)
            screen.type("o\n")
            client.until("$/cancel_request")
            client.until(ASKED_BY_ACPX)
            screen.until('text: "two"')  # the terminal may show the first question again while it is answered
            screen.until(ASKED_BY_TERMINAL)
            client.type("y\n")
            screen.until("answered elsewhere: allowed once")
            client.until(ASKED_BY_ACPX)
            screen.until('text: "three"')
            screen.until(ASKED_BY_TERMINAL)
            screen.process.kill()
        client.type("y\n")
        client.until(ASKED_BY_ACPX)
        with attached(tmp_path, project) as screen:
            screen.until(ASKED_BY_TERMINAL)
            os.kill(_owner(screen), signal.SIGKILL)
            screen.until("which has ended.")
            screen.until("To open it here: holdfast chat --resume")
            code = screen.end()
        client.end()

    assert (code, sorted(path.name for path in project.iterdir())) == (1, ["one", "three", "two"])
    assert check_recordings(tmp_path) == 1


@pytest.mark.slow
@pytest.mark.promise("ACP-05")
async def test_acpx_resumes_a_session_that_an_editor_has_open(tmp_path: Path, project: Path):
    async with editor(tmp_path) as zed:
        session = await zed.new(project)
        await zed.prompt(session, "/help")
        await run(acpx(tmp_path, "--approve-all", "sessions", "new", "--resume-session", session), tmp_path)
        zed.unanswered.add("session/request_permission")
        prompt = writes(project, "by-acpx")
        printed = await run(acpx(tmp_path, "--approve-all", "prompt", prompt), tmp_path)
        await zed.wait_until(lambda it: "written" in it.reply_text(session))

        prompts = [update["content"]["text"] for update in zed.updates(session, "user_message_chunk")]
        assert (prompts, "written" in printed) == ([prompt], True)
        assert await zed.prompt(session, "/help") == "end_turn"  # the editor still has it open
    assert (project / "by-acpx").read_text() == "by-acpx"
    await wait_ended(tmp_path)
    check_recordings(tmp_path)


def _owner(screen: Terminal) -> int:
    """The process that has the session open, as the terminal shows it."""
    found = re.search(r"process (\d+) has it open", screen.shown)
    assert found is not None
    return int(found[1])
