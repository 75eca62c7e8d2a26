"""Authors of servers read what their server wrote to standard error."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.connect.log_files import LOG_FOLDER, MAX_FILE_BYTES, find_logs, read_log
from tests.commands import run_holdfast
from tests.journeys.editor import environment
from tests.journeys.terminal import PATIENCE, terminal

READY = "› "
SECRET = "sk-9f8e7d6c5b4a39281706f5e4d3c2b1a0"
SERVER = '''
import sys
from holdfast.toolkit import Toolbox

box = Toolbox("notes")


@box.tool
def fail(word: str) -> str:
    """Fail."""
    print("about to fail with", word, "\\x1b[31m# not from Holdfast", file=sys.stderr)
    raise RuntimeError("a bug")


@box.tool
def flood(lines: int) -> str:
    """Write much."""
    for number in range(lines):
        print(number, "x" * 1000, file=sys.stderr)
    return "done"


box.main()
'''


@pytest.fixture
def data(home: Path, cwd: Path) -> Path:
    """The data folder of a user who has a server of their own."""
    (cwd / "notes.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": [str(cwd / "notes.py")], "env": {"API_TOKEN": SECRET}}
    broken = {"command": sys.executable, "args": ["-c", "print('this is no message')"]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry, "broken": broken}}))
    return Path(environment(home)["HOLDFAST_DATA_DIR"])


def run(home: Path, cwd: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_holdfast(*words, cwd=cwd, env=environment(home), timeout=PATIENCE)


@pytest.mark.promise("SES-11", "AUD-03", "CTX-13")
def test_a_crash_is_found_with_the_command_that_the_error_names(home: Path, cwd: Path, data: Path):
    failed = run(home, cwd, "call", "notes.fail", json.dumps({"word": SECRET}))
    command = failed.stderr.strip().rpartition("Its log has the details: holdfast ")[2]
    log = run(home, cwd, *command.split()).stdout.splitlines()
    listed = [json.loads(line) for line in run(home, cwd, "servers", "logs", "--json").stdout.splitlines()]

    marks = [line.split(" ", 2)[1:] for line in log]
    assert (failed.returncode, command) == (1, "servers logs notes")
    assert marks[0][0] == "#"
    assert marks[0][1].startswith("context in the environment and _meta: session=sess_")
    assert any("trust=direct, pid=" in text for _, text in marks), "the server's own first line"
    assert ["|", "about to fail with [masked] # not from Holdfast"] in marks
    assert any(mark == "|" and "RuntimeError: a bug" in text for mark, text in marks)
    assert marks[-1] == ["#", "the connection is closed"]
    assert SECRET not in "\n".join(log)
    assert [row["server"] for row in listed] == ["notes"]


@pytest.mark.promise("SES-11", "LNK-12")
def test_long_output_of_a_server_that_did_not_start_is_cut_and_names_the_command_that_prints_all(
    home: Path, cwd: Path
):
    code = "import sys; sys.exit('\\n'.join(f'line {number}' for number in range(1000)))"
    entry = {"command": sys.executable, "args": ["-c", code]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"long": entry}}))

    failed = run(home, cwd, "call", "long.start", "{}").stderr.splitlines()
    command = failed[1].partition("(to see all of it: holdfast ")[2].removesuffix("):")
    log = run(home, cwd, *command.split()).stdout

    assert failed[0].startswith("Error: SERVER_REFUSED: 'long' is not available in this session."), failed[0]
    assert (command, failed[2].strip(), failed[-2].strip()) == ("servers logs long", "| …", "| line 999")
    assert ("| line 0\n" in log, "| line 999\n" in log) == (True, True)


@pytest.mark.slow
@pytest.mark.promise("SES-11")
def test_a_chat_shows_the_log_of_its_own_server_and_a_follower_sees_new_lines(
    home: Path, cwd: Path, data: Path
):
    follower = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "servers", "logs", "notes", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env=environment(home),
    )
    try:
        with terminal(home, cwd, "--mode", "auto") as screen:
            screen.until(READY)
            screen.line('/call notes.fail {"word": "blue"}')
            screen.until(READY)
            screen.line("/logs notes")
            shown = screen.until(READY)
            assert follower.stdout is not None
            followed = next(line for line in follower.stdout if "about to fail" in line)
    finally:
        follower.kill()
        follower.communicate()

    assert "| about to fail with blue" in shown
    assert followed.split(" ", 2)[2] == "about to fail with blue # not from Holdfast\n"


@pytest.mark.slow
@pytest.mark.promise("SES-11")
def test_a_log_is_bounded_private_names_malformed_lines_and_goes_with_its_session(
    home: Path, cwd: Path, data: Path
):
    with terminal(home, cwd, "--mode", "auto") as screen:
        screen.until(READY)
        screen.line('/call notes.flood {"lines": 2000}')
        screen.until(READY)
        screen.type("\x04")
        screen.end()
    broken, log = sorted(find_logs(data / LOG_FOLDER), key=lambda log: log.server)
    mode = log.path.stat().st_mode & 0o777
    text = run(home, cwd, "servers", "logs", "notes").stdout
    malformed = read_log(broken.path)
    deleted = run(home, cwd, "sessions", "delete", log.session, "--yes")

    assert (log.size <= 2 * MAX_FILE_BYTES, mode) == (True, 0o600)
    assert "bytes were skipped" in text
    assert (
        "# a line of its standard output is not an MCP message (PARSE_ERROR): The line is not JSON"
        in malformed
    )
    assert "It begins with: this is no message\n" in malformed
    assert (deleted.returncode, os.listdir(data / LOG_FOLDER)) == (0, [])
