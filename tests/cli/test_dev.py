"""`holdfast dev`: a prompt for a server that is being written."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.cli.source_files import find_changed_file, read_file_states
from holdfast.host.data_folder import DATABASE_FILE
from tests.cli.test_sessions import HOLDFAST, environment, home, run

__all__ = ["home"]

SERVER = """
from holdfast.toolkit import Toolbox
from words import WORD

box = Toolbox("notes", envelope="meta")


@box.tool
def hello() -> str:
    '''Say hello.'''
    return WORD


box.main()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a server, and with a list of servers that a chat would ask about."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.py").write_text(SERVER)
    (folder / "words.py").write_text("WORD = 'first'")
    (folder / ".mcp.json").write_text('{"mcpServers": {"other": {"command": "true"}}}')
    return folder


@pytest.fixture
def dev(home: Path, project: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [HOLDFAST, "dev", "notes.py"],
        cwd=project,
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


def _send(dev: subprocess.Popen[str], line: str, until: str) -> str:
    """Type a line, and return what is printed until a line contains a text."""
    assert dev.stdin is not None
    assert dev.stdout is not None
    dev.stdin.write(f"{line}\n")
    dev.stdin.flush()
    printed = ""
    for printed_line in dev.stdout:
        printed += printed_line
        if until in printed_line:
            return printed
    raise AssertionError(printed)


@pytest.mark.slow
def test_saved_server_is_started_again_and_never_needs_approval(
    dev: subprocess.Popen[str], project: Path, home: Path
):
    first = _send(dev, "/call notes.hello", "first")
    # The new file has another size: Python loads a file that was changed in the same second, and has the same size, from its bytecode cache.
    (project / "words.py").write_text("WORD = 'sec")
    broken = _send(dev, "/call notes.hello", "SyntaxError")
    (project / "words.py").write_text("WORD = 'second'")
    (project / "notes.py").write_text(SERVER.replace("def hello", "def other"))
    second = _send(dev, "/call notes.other", "second")
    assert dev.stdin is not None
    dev.stdin.close()
    assert dev.wait() == 1, "a call failed"

    assert "To try the server in a browser: npx @modelcontextprotocol/inspector" in first
    assert "words.py was changed, but the server does not start:" in broken
    assert "notes.py was changed: notes was started again, with 1 tool." in second
    with closing(sqlite3.connect(home / "data" / DATABASE_FILE)) as database:
        counts = [
            database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("approvals", "sessions")
        ]
    assert counts == [0, 2], "the sessions of `home`, and no others"


def test_missing_file_is_an_error(home: Path, tmp_path: Path):
    ended = run(home, "dev", str(tmp_path / "absent.py"))

    assert (ended.returncode, "absent.py'.\nHint: Give the path" in ended.stderr) == (1, True)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("garden", "There is no program 'garden'.\nHint: Give the path"),
        ("notes", "There is no program 'notes'.\nHint: Did you mean notes.py?"),
        ("notes.js", "'notes.js' is not a program that can be started.\nHint: Give the path"),
        ("http://127.0.0.1:9/mcp", "`holdfast dev` starts a server.\nHint: To see its tools: holdfast probe"),
    ],
)
def test_command_that_starts_no_server_opens_no_prompt(home: Path, project: Path, command: str, message: str):
    (project / "notes.js").touch()
    ended = run(home, "dev", command, cwd=project, text="/tools\n")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert message in ended.stderr


def test_server_whose_file_has_a_space_in_its_name_is_called_as_it_is_listed(home: Path, project: Path):
    (project / "notes.py").rename(project / "my notes.py")
    done = run(home, "dev", "my notes.py", cwd=project, text="/tools\n/call my_notes.hello\n")

    assert done.returncode == 0
    assert "- my_notes.hello [" in done.stdout
    assert "first" in done.stdout


def test_help_does_not_mention_resuming_because_the_session_is_not_stored(home: Path, project: Path):
    done = run(home, "dev", "notes.py", cwd=project, text="/help\n")

    assert "/quit" in done.stdout
    assert ("resume" in done.stdout, "/approve" in done.stdout) == (False, False)


def test_only_source_files_are_watched(tmp_path: Path):
    before = read_file_states(tmp_path)
    for skipped in ("notes.txt", ".git/a.py", "node_modules/a.js", "__pycache__/a.py"):
        (tmp_path / skipped).parent.mkdir(exist_ok=True)
        (tmp_path / skipped).touch()
    unchanged = find_changed_file(before, read_file_states(tmp_path))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.py").touch()
    added = read_file_states(tmp_path)

    assert (unchanged, find_changed_file(before, added), find_changed_file(added, before)) == (
        "",
        "deep/a.py",
        "deep/a.py",
    )


@pytest.mark.parametrize("typed", ["", "/quit\n"])
def test_first_start_that_fails_shows_what_the_server_wrote_and_is_a_failure(
    home: Path, project: Path, typed: str
):
    (project / "words.py").write_text("raise RuntimeError('out of words')")
    done = run(home, "dev", "notes.py", cwd=project, text=typed)

    assert done.returncode == 1
    assert "exited with status 1" in done.stderr
    assert "| RuntimeError: out of words" in done.stderr


@pytest.mark.parametrize("command", [("notes.py",), ("--", sys.executable, "-m", "notes")])
def test_a_server_is_a_file_or_a_module_in_the_folder(home: Path, project: Path, command: tuple[str, ...]):
    name = "notes" if command == ("notes.py",) else "server"
    done = run(home, "dev", *command, cwd=project, text=f"/call {name}.hello\n")

    assert (done.returncode, "first" in done.stdout) == (0, True)


def test_the_example_of_the_banner_works_as_it_is_printed_if_a_tool_needs_no_arguments(
    home: Path, project: Path
):
    first, rest = SERVER_WITH_NAMES.split("# ---\n")
    (project / "shop.py").write_text(first + rest)
    (project / "names.py").write_text(first + "box.main()\n")

    shop = run(home, "dev", "shop.py", cwd=project, text="/quit\n").stderr
    names = run(home, "dev", "names.py", cwd=project, text="/quit\n").stderr

    placeholders = "call a tool, with your values for <…>"
    assert ("  /call shop.list {} " in shop, placeholders in shop) == (True, False)
    assert ("  /call names.add {" in names, placeholders in names) == (True, True)


SERVER_WITH_NAMES = """
from typing import Annotated
from holdfast.toolkit import Meta, Toolbox
box = Toolbox("shop")
@box.tool
def add(title: Annotated[str, Meta(pattern="^[a-z]+$", max_length=9)]) -> str:
    "Add an item."
    return title
# ---
@box.tool
def list() -> str:
    "List the items."
    return "none"
box.main()
"""
