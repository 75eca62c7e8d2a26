"""An author edits a server and tries it again: in a chat, with `holdfast call`, with and without pinned tools."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run_holdfast
from tests.journeys.editor import environment
from tests.journeys.terminal import PATIENCE, terminal

READY = "› "
SERVER = '''
from holdfast.toolkit import Toolbox

box = Toolbox("notes")


@box.tool(operation="query")
def {name}({parameter}: str) -> str:
    """{description}."""
    return "{answer} " + {parameter}


box.main()
'''


def write_server(file: Path, name: str, parameter: str, answer: str) -> None:
    file.write_text(
        SERVER.format(name=name, parameter=parameter, description=f"Says {answer}", answer=answer)
    )


@pytest.fixture
def script(home: Path, cwd: Path) -> Path:
    file = cwd / "notes.py"
    write_server(file, "greet", "word", "hello")
    return file


def add(home: Path, script: Path, **keys: object) -> None:
    entry = {"command": sys.executable, "args": [str(script)], **keys}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))


def run(home: Path, cwd: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_holdfast(*words, cwd=cwd, env=environment(home), timeout=PATIENCE)


@pytest.mark.promise("SES-06")
def test_an_edited_server_restarts_at_the_next_call_and_unpinned_tools_need_no_approval(
    home: Path, cwd: Path, script: Path
):
    add(home, script, pin_tools=False)

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call notes.greet {"word": "ann"}')
        screen.until("[r]eject")  # the hint that it only reads is not believed
        screen.line("a")
        first = screen.until(READY)
        write_server(script, "welcome", "person", "welcome")
        screen.line('/call notes.welcome {"person": "bob"}')
        screen.until("[r]eject")
        screen.line("a")
        edited = screen.until(READY)
        screen.line('/call notes.welcome {"person": "eve"}')
        again = screen.until(READY)
        script.write_text("def (\n")
        screen.line('/call notes.welcome {"person": "eve"}')
        broken = screen.until(READY)
        write_server(script, "welcome", "person", "fixed")
        screen.line('/call notes.welcome {"person": "eve"}')
        fixed = screen.until(READY)

    assert "hello ann" in first
    assert "welcome bob" in edited
    restarted = f"STATE_LOST: notes was restarted, because “{script}” was changed."
    assert restarted.replace(" ", "") in "".join(edited.split())  # lines are wrapped
    assert ("welcome eve" in again, "STATE_LOST" in again) == (True, False)
    assert "SyntaxError" in broken
    assert "fixed eve" in fixed


@pytest.mark.slow
def test_pinned_tools_that_changed_are_listed_with_the_command_that_approves_them(
    home: Path, cwd: Path, script: Path
):
    add(home, script)
    run(home, cwd, "call", "notes.greet", '{"word": "ann"}')
    write_server(script, "greet", "person", "hi")

    table = run(home, cwd, "tools", "notes")
    line = json.loads(run(home, cwd, "tools", "notes", "--json").stdout)
    called = run(home, cwd, "call", "notes.greet", '{"person": "ann"}')
    words = "/tools notes\n/call notes.greet {}\n"
    chat = run_holdfast("chat", input=words, cwd=cwd, env=environment(home), timeout=PATIENCE).stdout
    approved = run(home, cwd, *line["approve"].split()[1:], "--yes")
    after = run(home, cwd, "call", "notes.greet", '{"person": "ann"}')

    assert "notes.greet  awaits approval  It has changed" in table.stdout
    assert (line["state"], line["approve"]) == ("awaiting approval", "holdfast servers approve notes")
    assert called.stderr.startswith(
        "Error: NOT_APPROVED: notes.greet awaits your approval. It has changed since"
    )
    assert "holdfast servers approve notes" in called.stderr
    assert "- notes.greet [awaits approval: holdfast servers approve notes]" in chat
    assert "NOT_APPROVED: notes.greet awaits your approval." in chat
    assert "Did you mean" not in called.stderr + chat
    assert (approved.returncode, after.returncode, "hi ann" in after.stdout) == (0, 0, True)
