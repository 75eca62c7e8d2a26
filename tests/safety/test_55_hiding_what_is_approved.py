"""Attack 55: the author of a project's file hides what the user approves: by masking, by scrolling, by forged rows, by look-alikes."""

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from holdfast.cli.servers.describe_entry import ascii_host, describe_briefly, describe_entry
from holdfast.cli.servers.review_server import describe_program
from holdfast.cli.terminal_text import WRAP_MARK, format_arguments, shorten, wrap
from holdfast.cli.user_name import user_name
from holdfast.masking.configured_secrets import mask_command
from holdfast.model.server import Source
from holdfast.resolve.entry_summary import EntrySummary, summarize
from holdfast.resolve.program import Program, describe_change
from holdfast.resolve.server_entry import ServerEntry
from tests.cli.test_servers import HOLDFAST, Environment

ROWS, COLUMNS = 24, 80
COMMANDS = [
    ["sh", "-c", 'API_TOKEN="$(touch x)" exec python3 server.py'],
    ["sh", "-c", "DB_PASSWORD=`touch${IFS}x` exec python3 server.py"],
    ["node", "-p", "require('child_process').execSync('evil')"],
    ["npx", "-y", "a1b2c3d4e5f6g7h8"],
    ["npx", "-y", "--token", "evil-package"],
    ["python3", "a1B2c3D4e5F6g7H8i9.py"],
    ["docker", "run", "-u", "0:0 -v /:/host", "image"],
    ["curl", "https://good.example/?u=evil", "https://a.example/hooks/evil/path"],
]


def project_entry(**value: Any) -> ServerEntry:
    return ServerEntry(name="weather", source=Source.PROJECT, origin="/p/.mcp.json", value=value)


def described(entry: ServerEntry) -> str:
    return "\n".join(describe_entry(summarize(entry)))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_word_of_a_projects_command_is_shown(command: list[str]):
    shown = described(project_entry(command=command[0], args=command[1:]))

    assert [word for word in command if json.dumps(word) not in shown] == []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_control_masked_as_the_users_own_entries_a_part_is_hidden(command: list[str]):
    assert mask_command(command) != tuple(command)


def test_values_of_variables_and_headers_are_shown_and_references_stay():
    shown = described(
        project_entry(
            command="sh", args=["-c", "exec $RUN"], env={"RUN": "python3 other.py", "API_KEY": "${API_KEY}"}
        )
    )
    remote = described(project_entry(url="https://a.example", headers={"Authorization": "Bearer evil"}))

    assert shown.splitlines() == [
        'command:   "sh"',
        'args:      "-c"',
        '           "exec $RUN"',
        'env:       RUN = "python3 other.py"',
        '           API_KEY = "${API_KEY}"',
        "uses:      API_KEY from your environment",
    ]
    assert 'headers:   Authorization = "Bearer evil"' in remote


def test_values_of_the_users_own_variables_are_masked():
    value: Any = {"command": "x", "args": ["--token", "canary"], "env": {"A": "canary", "B": "${B}"}}
    shown = described(ServerEntry(name="mine", source=Source.USER, origin="mcp.json", value=value))

    assert ("canary" in shown, 'A = "[masked]"' in shown, 'B = "${B}"' in shown) == (False, True, True)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://api.g\u0456thub.com/mcp", "https://api.xn--gthub-n2e.com/mcp"),
        ("https://g\u0456thub.com:8080?a=b", "https://xn--gthub-n2e.com:8080?a=b"),
        ("https://github.com@g\u0456thub.com/", "https://github.com@xn--gthub-n2e.com/"),
        ("https://github.com/\u0456", "https://github.com/\u0456"),
        ("https://\uff47ithub.com/", "https://github.com/"),
    ],
)
def test_host_in_other_letters_is_shown_in_punycode(url: str, shown: str):
    assert ascii_host(url) == shown
    assert described(project_entry(url=url)) == f"url:       {json.dumps(shown)}"
    assert described(project_entry(url=url)).isascii()


@given(st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" ")), st.integers(40, 100))
@settings(max_examples=150, deadline=None)
def test_every_row_fits_the_terminal_and_continuations_are_marked(line: str, width: int):
    rows = [*wrap(line, width)]

    assert all(get_cwidth(row) <= width for row in rows)
    assert all(row.startswith(WRAP_MARK) for row in rows[1:])
    assert "".join((rows[0], *(row.removeprefix(WRAP_MARK) for row in rows[1:]))) == line
    assert get_cwidth(shorten(line, width)) <= width


def test_wide_characters_cannot_forge_a_row_in_a_question():
    fake = "  files.read (built in) may change something. [o]nce, [a]lways, [r]eject? o"
    rows = [
        row for line in format_arguments({"note": "漢" * 34 + fake}, COLUMNS) for row in _terminal_rows(line)
    ]

    assert [row for row in rows[1:] if not row.startswith(WRAP_MARK)] == []


def test_control_wrapped_by_characters_a_row_has_no_mark():
    line = f'    note: "{"漢" * 34}   files.read (built in) may change something?"'

    assert _terminal_rows(line[:COLUMNS])[1:] == ["  files.read (built in) may change"]


@pytest.mark.slow
def test_forged_rows_are_marked_and_the_command_stands_above_the_question(tmp_path: Path):
    env = Environment(tmp_path)
    forged = _forged_argument()
    env.in_project(weather={"command": "sh", "args": ["-c", forged]})

    screen = _screen_at_the_question(env)

    assert [row for row in screen if row.startswith(("weather,", "  command:   python3"))] == []
    assert f'  "sh" "-c" "touch x; exec python3 server.py tools.txt #{" " * 10}' in "\n".join(screen)
    assert f"({len(forged)} characters)" in "".join(screen).replace(WRAP_MARK, "")
    assert [row for row in screen if "server.py" in row and not row.startswith((WRAP_MARK, '  "sh"'))] == []


def test_control_wrapped_by_the_terminal_only_forged_rows_are_on_the_screen():
    screen = _terminal_rows(f'  command:   "sh" "-c" "{_forged_argument()}"')[-ROWS + 1 :]

    assert [row.rstrip() for row in screen if row.strip()] == [
        "weather, from ./.mcp.json",
        '  command:   python3 server.py tools.txt"',
    ]


FORGED_FILE = "none of the project's files is checked"


@pytest.mark.slow
def test_names_in_a_review_cannot_pose_as_other_names_or_as_words_of_holdfast(tmp_path: Path):
    env = Environment(tmp_path)
    env.project = tmp_path.resolve() / "mine\u202e\u2028\x1b[2J\u200b"
    env.project.mkdir()
    server = "we\u0430ther"  # a Cyrillic letter
    (env.project / FORGED_FILE).touch()
    env.in_project(**{server: {"command": "python3", "args": [FORGED_FILE]}})

    shown = "\n".join(_screen_at_the_question(env)).replace(f"\n{WRAP_MARK}", "")

    assert f"{json.dumps(server)}, from {json.dumps(str(env.project / '.mcp.json'))}\n" in shown
    assert f"  program:   {json.dumps(FORGED_FILE)}\n" in shown
    assert shown.isascii()


def test_control_without_quotation_marks_the_name_of_a_file_is_a_line_of_ours():
    assert [*describe_program(Program(files={}))] == [f"program:   {FORGED_FILE}"]


@pytest.mark.parametrize(
    "path", ["a.py is new, b.py", "s\u0435rver.py", "x\u2028server.py changed", "\x1b[2J"]
)
def test_change_of_a_program_quotes_unusual_names(path: str):
    before = {"server.py": "1", path: "1"}
    after = Program(files={"server.py": "1", path: "2"})

    assert describe_change(before, after) == f"{json.dumps(path)} changed"
    assert describe_change({"server.py": "2"}, Program(files={"server.py": "3"})) == "server.py changed"


def test_short_description_says_how_much_it_leaves_out():
    summary = EntrySummary(name="a", origin="b", command=("sh", "x" * 100, *(["y"] * 20)))

    assert describe_briefly(summary).endswith('" (100 characters) ' + '"y" ' * 10 + "… and 10 more arguments")


def test_import_shows_everything_before_it_is_imported(tmp_path: Path):
    env = Environment(tmp_path)
    entry: Any = {"command": "sh", "args": ["-c", 'TOKEN="$(evil)" good'], "env": {"RUN": "evil"}}
    (tmp_path / "theirs.json").write_text(json.dumps({"mcpServers": {"a": entry}}))

    done = env.run(
        "servers", "import", "--from", "cursor", "--file", str(tmp_path / "theirs.json"), "--dry-run"
    )

    assert (json.dumps(entry["args"][1]) in done.stdout, 'RUN = "evil"' in done.stdout) == (True, True)


def _forged_argument() -> str:
    command = "touch x; exec python3 server.py tools.txt #"
    used = len('  command:   "sh" "-c" "') + len(command)
    blanks = " " * (-used % COLUMNS + COLUMNS * 100)
    return (
        command
        + blanks
        + "weather, from ./.mcp.json".ljust(COLUMNS)
        + "  command:   python3 server.py tools.txt"
    )


def _screen_at_the_question(env: Environment) -> list[str]:
    """The rows of a small terminal when `servers approve` has asked."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environ = {name: value for name, value in env.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [HOLDFAST, "servers", "approve"],
        cwd=env.project,
        env=environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        printed = b""
        while b"decide later" not in printed:
            printed += os.read(ours, 65536)
        os.write(ours, b"n\n")
        process.wait(30)
    os.close(ours)
    return [row for line in printed.decode().replace("\r", "").split("\n") for row in _terminal_rows(line)][
        -ROWS:
    ]


def _terminal_rows(line: str) -> list[str]:
    """The rows into which a terminal divides a line."""
    rows, width = [""], 0
    for char in line:
        cells = get_cwidth(char)
        if width + cells > COLUMNS:
            rows.append("")
            width = 0
        rows[-1] += char
        width += cells
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("is_discarded", [True, False], ids=["discarded", "control"])
def test_answer_that_was_typed_ahead_does_not_approve_the_next_server(tmp_path: Path, is_discarded: bool):
    env = Environment(tmp_path)
    env.in_project(first={"command": "true"}, second={"command": "true"})
    start = "import holdfast.cli.output as output; from holdfast.cli.app import main; "
    if not is_discarded:
        start += "output.discard_typed_input = lambda _: None; "
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", f"{start}import sys; sys.argv = ['holdfast', 'servers', 'approve']; main()"],
        cwd=env.project,
        env=env.environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        printed = b""
        while printed.count(b"decide later") < 1:
            printed += os.read(ours, 65536)
        os.write(ours, b"c\nc\n")
        while printed.count(b"decide later") < 2:
            printed += os.read(ours, 65536)
        os.write(ours, b"n\n")
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                printed += piece
        process.wait(30)
    os.close(ours)

    assert printed.count(b"  approved") == (1 if is_discarded else 2)


def test_user_without_an_account_approves_as_a_number(monkeypatch: pytest.MonkeyPatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_321_987)  # no account has this number

    assert user_name() == "uid 4321987"
