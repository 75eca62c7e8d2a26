"""`holdfast servers`, `tools` and `call`, as a person and as a program use them."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connect import server
from tests.connect.conftest import counter

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


class Place:
    """A project folder, with lists of servers and data of its own."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.user_file = folder / "config" / "mcp.json"
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
            "HOLDFAST_DATA_DIR": str(folder / "data"),
            "HOLDFAST_CONFIG": str(folder / "config.toml"),
            "HOLDFAST_SERVERS_USER_FILE": str(self.user_file),
            "HOLDFAST_SERVERS_HOST_FILE": str(folder / "none.json"),
        }
        (folder / "config.toml").touch()

    def own(self, **servers: Any) -> None:
        self.user_file.parent.mkdir(exist_ok=True)
        self.user_file.write_text(json.dumps({"mcpServers": servers}))

    def in_project(self, **servers: Any) -> None:
        (self.project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))

    def run(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HOLDFAST, *words],
            cwd=self.project,
            env=self.environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def read(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.promise("RES-09")
def test_list_shows_who_stands_and_why_the_others_fell(place: Place):
    place.own(good={"command": "x"}, bad={"command": "${NOPE}"})
    place.in_project(theirs={"command": "y"})

    told = place.read("servers", "list")

    assert [(found["name"], found["source"], found["confined"]) for found in told["servers"]] == [
        ("files", "builtin", False),
        ("good", "user", False),
    ]
    assert {refusal["server"]: refusal["stage"] for refusal in told["refusals"]} == {
        "bad": "validate",
        "theirs": "admit",
    }


@pytest.mark.promise("RES-09")
def test_explain_names_the_stage_and_the_reason_and_exits_with_one(place: Place):
    place.in_project(theirs={"command": "y", "args": ["--all"], "env": {"KEY": "canary"}})

    done = place.run("servers", "explain", "theirs")

    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"theirs is written in {place.project}/.mcp.json (project).",
        '  command:   "y" "--all"',
        "  sets:      KEY",
        "Refused at admit: Nobody has approved it as it stands. Look at it and decide: holdfast servers approve",
    ]


def test_explain_of_a_server_that_is_not_there_says_so(place: Place):
    done = place.run("servers", "explain", "nope")

    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "Error: There is no server 'nope' here.")


@pytest.mark.promise("RES-07")
def test_a_project_s_server_runs_only_after_approval_of_that_exact_content(place: Place):
    script = {"command": sys.executable, "args": [server.__file__]}
    place.in_project(c=script)
    before = place.run("call", "c.count")
    place.run("servers", "approve", "--yes")
    after = place.run("call", "c.count")
    place.in_project(c={**script, "args": [server.__file__, "--more"]})
    changed = place.run("call", "c.count")

    assert [before.returncode, after.returncode, changed.returncode] == [1, 0, 1]
    assert after.stdout == "1\n"
    assert "Nobody has approved it as it stands" in changed.stderr


@pytest.mark.promise("RES-07")
def test_approve_shows_the_whole_entry_and_asks(place: Place):
    place.in_project(c={"command": "run-me", "args": ["${HOME}"], "env": {"A": "canary"}})
    said = _in_terminal(place, ["servers", "approve"], answer=b"n\n")

    assert b'command:   "run-me" "${HOME}"' in said
    assert b"is given:  HOME from your environment" in said
    assert b"canary" not in said
    assert place.read("servers", "list")["refusals"][0]["server"] == "c"


def test_approve_without_a_terminal_does_not_guess(place: Place):
    done = place.run("servers", "approve", stdin="")

    assert (done.returncode, "There is nobody to ask here" in done.stderr) == (2, True)


def test_import_takes_over_another_program_s_servers_and_leaves_ours_alone(place: Place, tmp_path: Path):
    place.own(mine={"command": "ours"})
    file = tmp_path / "mcp.json"
    file.write_text(
        '{ // VS Code allows comments\n "servers": {"mine": {"command": "theirs"}, '
        '"web": {"type": "http", "url": "https://x.org/mcp", "headers": {"X-Key": "${input:x-key}"}, "gallery": true}, },}'
    )

    dry = place.run("servers", "import", "--from", "vscode", "--file", str(file), "--dry-run")
    untouched = json.loads(place.user_file.read_text())
    place.run("servers", "import", "--from", "vscode", "--file", str(file))

    assert "would be added" in dry.stdout
    assert untouched == {"mcpServers": {"mine": {"command": "ours"}}}
    assert json.loads(place.user_file.read_text()) == {
        "mcpServers": {
            "mine": {"command": "ours"},
            "web": {"url": "https://x.org/mcp", "type": "http", "headers": {"X-Key": "${X_KEY}"}},
        }
    }
    assert place.user_file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("program", "content"),
    [
        ("claude-desktop", {"mcpServers": {"a": {"command": "x"}}}),
        ("claude-code", {"projects": {"/p": {"mcpServers": {"a": {"command": "x"}}}}}),
        ("cursor", {"mcpServers": {"a": {"command": "x", "envFile": ".env"}}}),
        ("vscode", {"mcp": {"servers": {"a": {"command": "x", "type": "stdio"}}}}),
    ],
)
def test_import_knows_where_each_program_keeps_its_servers(
    place: Place, tmp_path: Path, program: str, content: Any
):
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps(content))

    place.run("servers", "import", "--from", program, "--file", str(file))

    assert json.loads(place.user_file.read_text())["mcpServers"]["a"]["command"] == "x"


def test_import_without_a_list_says_where_it_looked(place: Place, tmp_path: Path):
    place.environ["HOME"] = str(tmp_path)
    done = place.run("servers", "import", "--from", "cursor")

    assert (done.returncode, str(tmp_path / ".cursor/mcp.json") in done.stderr) == (1, True)


def test_tools_lists_what_is_up_and_tells_what_is_not(place: Place):
    place.own(c=counter(), gone={"command": "no-such-program"})

    done = place.run("tools")

    assert "c.count" in done.stdout
    assert done.stderr.splitlines() == [
        "gone: Could not start 'no-such-program': there is no such program. Install it, or correct the server's command."
    ]
    assert [tool["name"] for tool in place.read("tools", "c")["tools"]][:2] == ["c.count", "c.whoami"]


def test_call_prints_the_answer_and_says_by_its_exit_code_how_it_went(place: Place):
    place.own(c=counter())

    good, bad = place.run("call", "c.count", "{}"), place.run("call", "c.fail")
    unknown, senseless = place.run("call", "c.nope"), place.run("call", "c.count", "[1]")

    assert [done.returncode for done in (good, bad, unknown, senseless)] == [0, 1, 1, 2]
    assert (good.stdout, bad.stderr) == ("1\n", "it did not work\n")
    assert "The arguments are no JSON object" in senseless.stderr
    assert place.read("call", "c.whoami", '{"a": 1}')["structured"]["arguments"] == {"a": 1}


def test_call_reads_its_arguments_from_standard_input(place: Place):
    place.own(c=counter())

    done = place.run("call", "c.whoami", "-", "--json", stdin='{"b": 2}')

    assert json.loads(done.stdout)["structured"]["arguments"] == {"b": 2}


@pytest.mark.promise("RES-04")
def test_a_call_in_a_sandboxed_session_gets_only_what_is_marked_for_it(place: Place):
    place.own(c=counter())

    done = place.run("call", "c.count", "--trust", "sandboxed")

    assert (done.returncode, "for direct sessions only" in done.stderr) == (1, True)


def _in_terminal(place: Place, words: list[str], answer: bytes) -> bytes:
    """What a person on a terminal sees, who gives this answer."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [HOLDFAST, *words], cwd=place.project, env=place.environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        os.write(ours, answer)
        said = b""
        try:
            while piece := os.read(ours, 65536):
                said += piece
        except OSError:
            pass  # the other side of a terminal is gone
        process.wait(30)
    os.close(ours)
    return said
