import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.failure import tell
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from tests.cli.test_sessions import HOLDFAST, environment, run
from tests.journeys.editor import SERVER


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("nope.x", "There is no server 'nope' here. See which tools there are: holdfast tools"),
        (
            "fils.list",
            "There is no server 'fils' here. Did you mean 'files'? See which tools there are: holdfast tools",
        ),
        (
            "files.lst",
            "There is no tool 'files.lst'. Did you mean 'files.list'? See which there are: holdfast tools files",
        ),
    ],
)
def test_a_tool_that_is_not_there_is_told_with_what_to_do(tmp_path: Path, tool: str, told: str):
    done = run(tmp_path, "call", tool)

    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (1, "", f"Error: {told}")


def test_a_program_gets_the_answer_as_it_is(tmp_path: Path):
    done = run(tmp_path, "call", "--json", "files.lst")

    assert (done.returncode, '"code": "UNKNOWN_TOOL"' in done.stdout, done.stderr) == (1, True, "")


def test_what_a_tool_of_ours_could_not_do_is_told_in_a_sentence(tmp_path: Path):
    done = run(tmp_path, "call", "files.read", '{"path": "nope"}')

    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (
        1,
        "",
        ["Error: There is no file 'nope'.", "Hint: Look at what is there with `list` or `find`."],
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_an_answer_is_given_to_the_letter_and_never_steers_a_terminal(tmp_path: Path, *, terminal: bool):
    entry = {"command": sys.executable, "args": [str(SERVER)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))
    ours, theirs = pty.openpty() if terminal else os.pipe()

    with os.fdopen(ours, "rb", buffering=0) as reader:
        subprocess.run(
            [HOLDFAST, "call", "tools.echo", '{"text": "a \\u001b[2Jb"}'],
            stdout=theirs,
            cwd=tmp_path,
            env=environment(tmp_path),
            check=True,
        )
        shown = reader.read(1000)
        os.close(theirs)

    assert shown == (b"a \xef\xbf\xbd[2Jb\r\n" if terminal else b"a \x1b[2Jb\n")


def test_a_failure_that_quotes_a_server_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]):
    tell(HoldfastError(codes.BAD_ANSWER, "It said:\n  | \x1b[2J"))

    assert capsys.readouterr().err.startswith("Error: It said:\n  | �[2J\nHint: ")


def test_how_long_a_call_may_take_is_a_setting_unless_it_is_said(tmp_path: Path):
    entry = {"command": sys.executable, "args": [str(SERVER)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))
    (tmp_path / "config.toml").write_text("[links]\ncall_seconds = 1\n")
    waiting = json.dumps({"started": str(tmp_path / "started"), "seconds": 5})

    answers = [run(tmp_path, "call", *said, "tools.wait", waiting) for said in ([], ["--timeout", "0.5"])]

    assert [(done.returncode, done.stdout + done.stderr) for done in answers] == [
        (1, "TIMEOUT: tools.wait did not answer within 1 s.\n"),
        (1, "TIMEOUT: tools.wait did not answer within 0.5 s.\n"),
    ]
