"""`holdfast chat`, as a person at a terminal meets it, and as a program at a pipe does."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.editor import SERVER, environment
from tests.journeys.terminal import CHAT, PATIENCE, Terminal, terminal

READY = "› "
QUESTION = "[r]eject? "


@pytest.fixture
def server(home: Path) -> None:
    """A server of the user's own, beside the built-in ones."""
    entry = {"command": sys.executable, "args": [str(SERVER)]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))


def piped(home: Path, cwd: Path, text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CHAT, *arguments],
        input=text,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(home),
        timeout=PATIENCE,
        check=False,
    )


def test_it_greets_says_where_it_is_what_it_has_and_what_to_type(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        greeting = screen.until(READY)
        screen.type("\x04")
        code = screen.end()

    assert f"folder   {cwd}" in greeting
    assert "servers  files (" in greeting
    assert "/tools" in greeting
    assert "Ctrl-C cancels, Ctrl-D leaves." in greeting
    assert b"\x1b[" in screen.raw, "a person sees colours"
    assert code == 0


def test_a_tool_call_is_shown_as_it_runs_and_its_diff_when_it_is_done(home: Path, cwd: Path):
    (cwd / "file").write_text("old\n")

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.edit {"path": "file", "old": "old", "new": "new"}')
        asked = screen.until(QUESTION)
        before = (cwd / "file").read_text()
        screen.line("o")
        done = screen.until(READY)

    assert '● files.edit {"path": "file"' in asked
    assert (before, (cwd / "file").read_text()) == ("old\n", "new\n")
    assert "  ✓\n" in done
    assert "    -old\n    +new\n" in done


@pytest.mark.promise("ACP-09")
def test_permission_is_given_once_or_for_the_session_or_not(home: Path, cwd: Path):
    def write(name: str) -> str:
        return f'/call files.write {{"path": "{name}", "text": "x"}}'

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line(write("rejected"))
        screen.until(QUESTION)
        screen.line("r")
        rejected = screen.until(READY)
        screen.line(write("once"))
        screen.until(QUESTION)
        screen.line("perhaps")
        screen.until(QUESTION)
        screen.line("o")
        screen.until(READY)
        screen.line(write("always"))
        screen.until(QUESTION)
        screen.line("a")
        screen.until(READY)
        screen.line(write("unasked"))
        unasked = screen.until(READY)

    assert "rejected\n  ✗ NOT_PERMITTED" in rejected
    assert QUESTION not in unasked
    assert sorted(os.listdir(cwd)) == ["always", "once", "unasked"]


@pytest.mark.parametrize("typed", ["/quit\n", "\x04"])
def test_whoever_wants_to_leave_at_a_question_is_told_how(home: Path, cwd: Path, typed: str):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.write {"path": "new", "text": "x"}')
        screen.until(QUESTION)
        screen.type(typed)
        screen.until("Ctrl-C cancels the turn; after that you can leave.")

    assert not (cwd / "new").exists()


@pytest.mark.usefixtures("server")
def test_ctrl_c_cancels_the_turn_and_the_session_goes_on(home: Path, cwd: Path):
    started = cwd / "started"

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line(f'/call tools.wait {{"started": "{started}"}}')
        _wait_for(started)
        screen.interrupt("Cancelled.")
        screen.until(READY)
        screen.line('/call tools.echo {"text": "still here"}')
        after = screen.until(READY)
        screen.type("\x04")
        code = screen.end()

    _wait_for(started.with_suffix(".cancelled"))
    assert "still here" in after
    assert code == 0
    assert not _is_alive(int(started.read_text()))


def test_ctrl_c_at_a_question_says_no_and_cancels(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.write {"path": "file", "text": "x"}')
        screen.until(QUESTION)
        screen.interrupt("Cancelled.")
        screen.until(READY)

    assert os.listdir(cwd) == []


def test_ctrl_c_twice_at_the_prompt_leaves(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.interrupt("Ctrl-C again, or Ctrl-D, leaves.")
        screen.until(READY)
        screen.interrupt("\n")
        code = screen.end()

    assert code == 0


def test_tab_completes_commands_and_tools(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type("/ca\t files.li\t {}\n")
        shown = screen.until("✓")

    assert "● files.list {}" in shown


def test_a_chat_is_resumed_with_all_that_was_said(home: Path, cwd: Path):
    piped(home, cwd, "/call files.list {}\n")
    (stored,) = _sessions(home)

    with terminal(home, cwd, "--resume") as screen:
        before = screen.until("Going on with")
        screen.until(READY)
        screen.line("/servers")
        screen.until("files: up")
    by_id = piped(home, home, "/servers\n", "--resume", stored["id"][5:13])

    assert "› /call files.list {}\n● files.list {}\n  ✓\n" in before
    assert "› /servers" in by_id.stdout
    assert f"folder   {cwd}" in by_id.stdout, "a session goes on in its own folder"
    assert [session["id"] for session in _sessions(home)] == [stored["id"]]


def test_what_files_and_servers_say_does_not_steer_the_terminal(home: Path, cwd: Path):
    (cwd / "evil").write_text("\x1b]0;owned\x07\x1b[2J\rgone")

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.read {"path": "evil"}')
        screen.until("gone")

    assert b"\x1b[2J" not in screen.raw
    assert b"\x1b]0;" not in screen.raw


def test_a_pipe_is_answered_line_by_line_without_colours_and_ends_well(home: Path, cwd: Path):
    (cwd / "file").write_text("what is in it")

    done = piped(
        home, cwd, '/call files.read {"path": "file"}\n\n/call files.write {"path": "file", "text": ""}\n'
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "files.read:\nwhat is in it\n" in done.stdout
    assert (
        "NOT_PERMITTED: files.write needs somebody's permission, and there is nobody to ask." in done.stdout
    )
    assert (cwd / "file").read_text() == "what is in it"


def test_the_json_of_a_call_goes_on_over_several_lines(home: Path, cwd: Path):
    (cwd / "a.txt").write_text("kelp")

    said = piped(home, cwd, '/call files.read {\n  "path":\n  "a.txt"\n}\n/call files.read {\n\n/tools\n')

    assert (said.returncode, said.stdout.count("kelp"), "not closed" in said.stdout) == (0, 1, True)


def test_modes_decide_where_there_is_nobody_to_ask(home: Path, cwd: Path):
    write = '/call files.write {"path": "file", "text": "x"}\n'

    refused = piped(home, cwd, write, "--mode", "read-only")
    written = piped(home, cwd, write, "--mode", "auto")

    assert "this session's mode is read-only" in refused.stdout
    assert "✓" in written.stdout
    assert (cwd / "file").read_text() == "x"


def test_no_input_at_all_ends_well(home: Path, cwd: Path):
    done = piped(home, cwd, "")

    assert done.returncode == 0
    assert "/help" in done.stdout


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("leave", "number"), [(Terminal.terminate, signal.SIGTERM), (Terminal.hang_up, signal.SIGHUP)]
)
def test_ended_in_the_midst_of_a_turn_it_leaves_no_process_and_the_turn_is_told(
    home: Path, cwd: Path, leave: Callable[[Terminal], int], number: int
):
    started = cwd / "started"

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line(f'/call tools.wait {{"started": "{started}"}}')
        _wait_for(started)
        code = leave(screen)

    assert code == 128 + number
    assert not _is_alive(int(started.read_text()))
    (stored,) = _sessions(home)
    assert (stored["state"], stored["interrupted"]) == ("closed", False)
    assert "/call tools.wait" in (home / "data" / "chat_history").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--resume",), "There is no session in"),
        (("--resume", "sess_0123456789abcdef"), "There is no session 'sess_0123456789abcdef'."),
        (("--workspace", "nowhere"), "There is no workspace 'nowhere'."),
    ],
)
def test_what_cannot_be_opened_is_told_in_a_sentence(
    home: Path, cwd: Path, arguments: tuple[str, ...], told: str
):
    done = piped(home, cwd, "", *arguments)

    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def _sessions(home: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*CHAT[:-1], "sessions", "list", "--json"],
        capture_output=True,
        text=True,
        env=environment(home),
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not file.exists() or (file.suffix == "" and not file.read_text()):
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
