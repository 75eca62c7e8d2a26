"""`holdfast servers`, `tools` and `call`."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connect import counter_server
from tests.connect.conftest import counter_entry

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


class Environment:
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

    def read_lines(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self.run(*words, "--json").stdout.splitlines()]

    def read(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


@pytest.mark.promise("RES-09")
def test_list_shows_available_servers_and_why_others_are_refused(env: Environment):
    env.own(good={"command": "x"}, bad={"command": "${NOPE}"})
    env.in_project(theirs={"command": "y"})

    listed = env.read("servers", "list")

    assert [(found["name"], found["source"], found["confined"]) for found in listed["servers"]] == [
        ("files", "builtin", False),
        ("good", "user", False),
    ]
    assert {refusal["server"]: refusal["stage"] for refusal in listed["refusals"]} == {
        "bad": "validate",
        "theirs": "admit",
    }


@pytest.mark.promise("RES-09")
def test_explain_prints_stage_and_reason_and_exits_with_1(env: Environment):
    env.in_project(theirs={"command": "y", "args": ["--all"], "env": {"KEY": "canary"}})

    done = env.run("servers", "explain", "theirs")

    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"theirs is configured in {env.project}/.mcp.json (project).",
        '  command:   "y"',
        '  args:      "--all"',
        '  env:       KEY = "canary"',
        "Refused at admit: It is not approved as it is now. To review it, run: holdfast servers approve",
    ]


def test_explaining_an_unknown_server_is_an_error(env: Environment):
    done = env.run("servers", "explain", "nope")

    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "Error: There is no server 'nope' here.",
    )


@pytest.mark.promise("RES-07")
def test_a_project_server_runs_only_after_approval_of_its_exact_content(env: Environment):
    script = {"command": sys.executable, "args": [counter_server.__file__]}
    env.in_project(c=script)
    before = env.run("call", "c.count")
    env.run("servers", "approve", "--yes")
    after = env.run("call", "c.count")
    env.in_project(c={**script, "args": [counter_server.__file__, "--more"]})
    changed = env.run("call", "c.count")

    assert [before.returncode, after.returncode, changed.returncode] == [1, 0, 1]
    assert after.stdout == "1\n"
    assert "It is not approved as it is now" in changed.stderr


@pytest.mark.promise("RES-07")
def test_approve_shows_the_whole_entry_and_asks(env: Environment):
    env.in_project(c={"command": "run-me", "args": ["${HOME}"], "env": {"A": "canary"}})
    printed = _in_terminal(env, ["servers", "approve"], answer=b"n\n")

    assert b'command:   "run-me"\r\n  args:      "${HOME}"\r\n  env:       A = "canary"\r\n' in printed
    home = json.dumps(env.environ["HOME"])
    assert f"uses:      HOME = {home} from your environment".encode() in printed
    assert env.read("servers", "list")["refusals"][0]["server"] == "c"


@pytest.mark.promise("RES-07")
def test_approve_shows_the_program_and_the_tools_and_says_what_changed(env: Environment, tmp_path: Path):
    claim = {"name": "add", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    server = env.project / "server.py"
    server.write_text(Path(__file__).parents[1].joinpath("safety", "changing_tools_server.py").read_text())
    (tmp_path / "tools").write_text(json.dumps([claim]))
    env.in_project(c={"command": sys.executable, "args": ["server.py", str(tmp_path / "tools")]})
    first = env.run("servers", "approve", "--yes").stdout
    again = env.run("servers", "approve", "--yes").stdout
    server.write_text(f"# changed\n{server.read_text()}")
    refused = env.run("call", "c.add")
    changed = env.run("servers", "approve", "--yes").stdout

    assert ('  program:   "server.py"\n' in first, '"readOnlyHint": true' in first) == (True, True)
    assert again == "Nothing awaits approval.\n"
    assert "Its program is not as it was approved: server.py changed." in refused.stderr
    assert "since you approved it: server.py changed" in changed
    assert env.run("call", "c.add").stdout == "add ran\n"


def test_approve_shows_how_a_tool_changed(env: Environment, tmp_path: Path):
    server = str(Path(__file__).parents[1] / "safety" / "changing_tools_server.py")
    env.own(c={"command": sys.executable, "args": [server, str(tmp_path / "tools")]})
    for hint in (False, True):
        tool = {"name": "add", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": hint}}
        (tmp_path / "tools").write_text(json.dumps([tool]))
        shown = env.run("servers", "approve", "--yes").stdout.splitlines()

    assert [line.strip() for line in shown if "readOnlyHint" in line] == [
        '-    "readOnlyHint": false',
        '+    "readOnlyHint": true',
    ]


def test_approve_without_a_terminal_requires_yes(env: Environment):
    done = env.run("servers", "approve", stdin="")

    assert (done.returncode, "Cannot ask for approval without a terminal" in done.stderr) == (2, True)


def test_import_adds_servers_and_keeps_existing_ones(env: Environment, tmp_path: Path):
    env.own(mine={"command": "ours"})
    file = tmp_path / "mcp.json"
    file.write_text(
        '{ // VS Code allows comments\n "servers": {"mine": {"command": "theirs"}, '
        '"web": {"type": "http", "url": "https://x.org/mcp", "headers": {"X-Key": "${input:x-key}"}, "gallery": true}, },}'
    )

    dry = env.run("servers", "import", "--from", "vscode", "--file", str(file), "--dry-run")
    untouched = json.loads(env.user_file.read_text())
    env.run("servers", "import", "--from", "vscode", "--file", str(file))

    assert "would be added" in dry.stdout
    assert "set the environment variable X_KEY: VS Code asked you for this value" in dry.stdout
    assert untouched == {"mcpServers": {"mine": {"command": "ours"}}}
    assert json.loads(env.user_file.read_text()) == {
        "mcpServers": {
            "mine": {"command": "ours"},
            "web": {"url": "https://x.org/mcp", "type": "http", "headers": {"X-Key": "${X_KEY}"}},
        }
    }
    assert env.user_file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("app", "content"),
    [
        ("claude-desktop", {"mcpServers": {"a": {"command": "x"}}}),
        ("claude-code", {"projects": {"/p": {"mcpServers": {"a": {"command": "x"}}}}}),
        ("cursor", {"mcpServers": {"a": {"command": "x", "envFile": ".env"}}}),
        ("vscode", {"mcp": {"servers": {"a": {"command": "x", "type": "stdio"}}}}),
    ],
)
def test_import_finds_the_configuration_of_each_client(
    env: Environment, tmp_path: Path, app: str, content: Any
):
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps(content))

    env.run("servers", "import", "--from", app, "--file", str(file))

    assert json.loads(env.user_file.read_text())["mcpServers"]["a"]["command"] == "x"


def test_import_without_a_configuration_says_where_it_looked(env: Environment, tmp_path: Path):
    env.environ["HOME"] = str(tmp_path)
    done = env.run("servers", "import", "--from", "cursor")

    assert (done.returncode, str(tmp_path / ".cursor/mcp.json") in done.stderr) == (1, True)


def test_tools_lists_tools_and_failed_servers(env: Environment):
    env.own(c=counter_entry(), gone={"command": "no-such-program"})

    done = env.run("tools")

    assert "c.count" in done.stdout
    assert done.stderr.splitlines() == [
        "gone: Could not start 'no-such-program': there is no such program. Install it, or correct the server's command."
    ]
    assert [tool["name"] for tool in env.read("tools", "c")["tools"]][:2] == ["c.count", "c.whoami"]


def test_call_prints_the_result_and_sets_the_exit_code(env: Environment):
    env.own(c=counter_entry())

    good, bad = env.run("call", "c.count", "{}"), env.run("call", "c.fail")
    unknown, senseless = env.run("call", "c.nope"), env.run("call", "c.count", "[1]")

    assert [done.returncode for done in (good, bad, unknown, senseless)] == [0, 1, 1, 2]
    assert (good.stdout, bad.stderr) == ("1\n", "it did not work\n")
    assert "The arguments are not a JSON object" in senseless.stderr
    assert env.read("call", "c.whoami", '{"a": 1}')["structured"]["arguments"] == {"a": 1}


def test_call_reads_its_arguments_from_standard_input(env: Environment):
    env.own(c=counter_entry())

    done = env.run("call", "c.whoami", "-", "--json", stdin='{"b": 2}')

    assert json.loads(done.stdout)["structured"]["arguments"] == {"b": 2}


@pytest.mark.promise("RES-04")
def test_a_sandboxed_call_gets_only_servers_marked_for_it(env: Environment):
    env.own(c=counter_entry())

    done = env.run("call", "c.count", "--trust", "sandboxed")

    assert (done.returncode, "Only direct sessions may use it" in done.stderr) == (1, True)


def _in_terminal(env: Environment, words: list[str], answer: bytes) -> bytes:
    """What a person on a terminal sees, who gives this answer."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [HOLDFAST, *words], cwd=env.project, env=env.environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        printed, answered = b"", False
        try:
            while piece := os.read(ours, 65536):
                printed += piece
                if (
                    not answered and b"decide later" in printed
                ):  # what is typed before the question does not count
                    os.write(ours, answer)
                    answered = True
        except OSError:
            pass  # the other side of a terminal is gone
        process.wait(30)
    os.close(ours)
    return printed
