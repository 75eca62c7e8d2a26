"""`holdfast servers`, `tools` and `call`."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.model.context import SessionContext, context_env
from holdfast.model.ids import new_session_id
from holdfast.model.trust import Trust
from tests.commands import run_holdfast
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
        return run_holdfast(*words, cwd=self.project, env=self.environ, input=stdin)

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

    listed = env.read_lines("servers", "list")

    available = [found for found in listed if found["state"] == "available"]
    assert [(found["server"], found["source"], found["confined"]) for found in available] == [
        ("files", "builtin", False),
        ("good", "user", False),
    ]
    assert {found["server"]: found["stage"] for found in listed if found["state"] == "refused"} == {
        "bad": "validate",
        "theirs": "admit",
    }
    assert [(found["source"], found["target"]) for found in listed if found["state"] == "refused"] == [
        ("project", "y"),
        ("user", "${NOPE}"),
    ]
    assert "theirs  project  y" in env.run("servers", "list").stdout


@pytest.mark.promise("RES-09")
def test_explain_prints_stage_and_reason_and_exits_with_1(env: Environment):
    env.in_project(theirs={"command": "y", "args": ["--all"], "env": {"KEY": "canary"}})

    done = env.run("servers", "explain", "theirs")

    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[:6] == [
        f"theirs is configured in {env.project}/.mcp.json (project).",
        '  command:   "y"',
        '  args:      "--all"',
        '  env:       KEY = "canary"',
        "  program:   none of the project's files is checked",
        "  runs:      nothing yet: there is no such program here",
    ]
    assert lines[-1] == (
        "Refused: It is not approved, or has changed since you approved it. To review it, run: holdfast servers approve"
    )


@pytest.mark.parametrize("command", [("servers", "explain"), ("servers", "approve", "--yes"), ("tools",)])
def test_an_unknown_server_is_an_error_that_names_the_servers_here(
    env: Environment, command: tuple[str, ...]
):
    env.in_project(github={"command": "run-me"})
    typo, other = (env.run(*command, name) for name in ("githbu", "nope"))

    assert (typo.returncode, typo.stderr.splitlines()[0]) == (
        1,
        "Error: There is no server 'githbu' here. Did you mean 'github'?",
    )
    assert "The servers here are: 'files', 'github'." in " ".join(other.stderr.split())


@pytest.mark.promise("RES-07")
def test_a_project_server_runs_only_after_approval_of_its_exact_content(env: Environment):
    script = {"command": sys.executable, "args": [counter_server.__file__]}
    env.in_project(c=script)
    before = env.run("call", "c.count")
    env.run("servers", "approve", "--direct", "--yes")
    after = env.run("call", "c.count")
    env.in_project(c={**script, "args": [counter_server.__file__, "--more"]})
    changed = env.run("call", "c.count")

    assert env.run("sessions", "list", "--json").stdout == "", "the approval stores no session"
    assert [before.returncode, after.returncode, changed.returncode] == [1, 0, 1]
    assert after.stdout == "1\n"
    assert "It is not approved, or has changed since you approved it" in changed.stderr


@pytest.mark.slow
@pytest.mark.promise("RES-07")
def test_approve_shows_the_whole_entry_and_asks(env: Environment):
    env.in_project(c={"command": "run-me", "args": ["${HOME}"], "env": {"A": "canary"}})
    printed = _in_terminal(env, ["servers", "approve"], answer=b"n\n")

    assert b'command:   "run-me"\r\n  args:      "${HOME}"\r\n  env:       A = "canary"\r\n' in printed
    home = json.dumps(env.environ["HOME"])
    assert f"uses:      HOME = {home} from your environment".encode() in printed
    assert env.read_lines("servers", "list")[-1]["server"] == "c"


@pytest.mark.slow
@pytest.mark.promise("RES-07")
def test_approve_shows_the_program_and_the_tools_and_says_what_changed(env: Environment, tmp_path: Path):
    claim = {"name": "add", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    server = env.project / "server.py"
    server.write_text(Path(__file__).parents[1].joinpath("safety", "changing_tools_server.py").read_text())
    (tmp_path / "tools").write_text(json.dumps([claim]))
    env.in_project(c={"command": sys.executable, "args": ["server.py", str(tmp_path / "tools")]})
    first = env.run("servers", "approve", "--direct", "--yes").stdout
    again = env.run("servers", "approve", "--yes").stdout
    server.write_text(f"# changed\n{server.read_text()}")
    refused = env.run("call", "c.add")
    changed = env.run("servers", "approve", "--yes").stdout

    assert ('  program:   "server.py"\n' in first, '"readOnlyHint": true' in first) == (True, True)
    assert again == "Nothing awaits approval.\n"
    assert "Its program is not as it was approved: server.py changed." in refused.stderr
    assert "since you approved it: server.py changed" in changed
    assert env.run("call", "c.add").stdout == "add ran\n"


@pytest.mark.promise("RES-07")
def test_hints_that_await_approval_are_named_without_a_terminal(env: Environment, tmp_path: Path):
    claim = {"name": "add", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    source = Path(__file__).parents[1].joinpath("safety", "changing_tools_server.py").read_text()
    (env.project / "server.py").write_text(source)
    (tmp_path / "tools").write_text(json.dumps([claim]))
    env.in_project(c={"command": sys.executable, "args": ["server.py", str(tmp_path / "tools")]})
    direct = env.run("servers", "approve", "--direct", stdin="")
    listed = env.run("tools", "c")
    chat = env.run("chat", stdin="/tools c\n")
    shown = env.run("servers", "approve", stdin="")
    approved = env.run("servers", "approve", "c", "--yes", stdin="")
    nothing = env.run("servers", "approve", stdin="")

    named = "Hints about tools of "
    assert [named in text for text in (direct.stdout, listed.stderr, chat.stdout, chat.stderr)] == [True] * 4
    assert ('"readOnlyHint": true' in shown.stdout, "servers approve c --yes" in shown.stdout) == (True, True)
    codes = [done.returncode for done in (direct, shown, approved, nothing)]
    assert (codes, nothing.stdout) == ([0, 1, 0, 0], "Nothing awaits approval.\n")


@pytest.mark.parametrize(
    "command", [("call", "theirs.x"), ("tools", "theirs"), ("servers", "explain", "theirs")]
)
def test_a_list_that_cannot_be_read_is_named_if_a_server_is_not_found(
    env: Environment, command: tuple[str, ...]
):
    file = env.project / ".mcp.json"
    file.write_text('{"mcpServers": {"theirs": ')

    assert f"{file} was not read: It is not valid JSON" in env.run(*command).stderr


@pytest.mark.parametrize("path", ["sub/../.mcp.json", "../link/.mcp.json"])
def test_an_approval_is_revoked_by_any_path_of_its_file(env: Environment, path: str):
    (env.project / "sub").mkdir()
    (env.project.parent / "link").symlink_to(env.project)
    env.in_project(c={"url": "https://mcp.example.org/"})
    env.run("servers", "approve", "c", "--direct")
    revoked = env.run("servers", "revoke", "c", "--file", path)
    again = env.run("servers", "revoke", "c", "--file", path)

    assert revoked.stdout.startswith(f"Revoked: 'c' of {env.project / '.mcp.json'}.")
    assert again.stderr.startswith(f"Error: No server 'c' of '{env.project / '.mcp.json'}' is approved.")


@pytest.mark.slow
@pytest.mark.promise("RES-07")
def test_an_approval_can_follow_edits_until_it_is_revoked(env: Environment, tmp_path: Path):
    server = env.project / "server.py"
    server.write_text(Path(__file__).parents[1].joinpath("safety", "changing_tools_server.py").read_text())
    (tmp_path / "tools").write_text(json.dumps([{"name": "add", "inputSchema": {"type": "object"}}]))
    env.in_project(c={"command": sys.executable, "args": ["server.py", str(tmp_path / "tools")]})
    wrong = [
        env.run("servers", "approve", "c", *words)
        for words in (("--follow-edits", "--yes"), ("--direct", "--follow-edits", "--trust", "sandboxed"))
    ]
    env.run("servers", "approve", "c", "--direct")
    followed = env.run("servers", "approve", "c", "--direct", "--follow-edits").stdout
    server.write_text(server.read_text().replace("ran", "was edited"))
    edited = env.run("call", "c.add").stdout
    again = env.run("servers", "approve", "c", "--direct", "--follow-edits").stdout
    listed, explained = env.run("servers", "list").stdout, env.run("servers", "explain", "c").stdout
    approvals = env.run("servers", "approvals").stdout
    env.run("servers", "revoke", "c")

    assert [done.returncode for done in wrong] == [2, 1]
    assert "sessions in this folder are sandboxed" in wrong[1].stderr
    assert "approved, with your rights, including later edits" in followed
    assert (edited, again) == ("add was edited\n", "Nothing awaits approval.\n")
    assert "direct, follows your edits" in listed
    assert "A session here gets c: direct, follows your edits." in explained
    assert "later edits of its program" in approvals
    assert "It is not approved, or has changed since you approved it" in env.run("call", "c.add").stderr
    assert "later edits" not in env.run("servers", "approvals").stdout


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


@pytest.mark.slow
@pytest.mark.promise("RES-07")
def test_approve_fails_and_says_why_if_something_still_awaits_approval(env: Environment):
    inner = env.project / "inner"
    inner.mkdir()
    file = env.project / ".mcp.json"
    env.in_project(c={"command": "run-me"})
    yes = env.run("servers", "approve", "--yes")
    above = env.run("servers", "approve", "--direct", "--cwd", str(inner))
    named_above = env.run("servers", "approve", "c", "--direct", "--cwd", str(inner))
    home = env.run("servers", "approve", "c", "--readable", env.environ["HOLDFAST_DATA_DIR"])
    env.in_project(c={"command": "run-me", "lifetime": "eternal"})
    invalid = env.run("servers", "approve", "--direct")
    file.write_text("{")
    broken = env.run("servers", "approve", "--direct")
    file.unlink()
    nothing = env.run("servers", "approve", "--direct")

    runs = (yes, above, named_above, home, invalid, broken, nothing)
    assert [done.returncode for done in runs] == [1, 1, 1, 1, 1, 1, 0]
    assert "not approved: say how it may run. Add --confined" in yes.stdout
    assert f"its servers: holdfast servers approve --cwd {env.project}" in " ".join(above.stderr.split())
    assert f"holdfast servers approve c --cwd {env.project}" in " ".join(named_above.stderr.split())
    assert "overlaps with Holdfast's own files" in home.stdout
    assert '"c" cannot be used: ' in invalid.stdout
    assert "It is not valid JSON" in broken.stderr
    assert nothing.stdout == "Nothing awaits approval.\n"


def test_approve_without_a_terminal_says_what_to_add(env: Environment):
    (env.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"c": {"command": sys.executable}}}))

    done = env.run("servers", "approve", stdin="")

    advice = "To approve it as confined, run: holdfast servers approve c --confined"
    assert (done.returncode, advice in done.stdout) == (1, True)


def test_holdfast_mcp_does_not_run_as_a_server_of_a_session(env: Environment):
    context = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
    env.environ |= context_env(context)
    done = env.run("mcp", stdin="")

    assert (done.returncode, "started `holdfast mcp` as one of its servers" in done.stderr) == (1, True)


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


def test_imported_server_of_a_project_stays_in_that_project(env: Environment, tmp_path: Path):
    file = tmp_path / "theirs.json"
    folders = [tmp_path / "one", tmp_path / "two"]
    projects: dict[str, Any] = {}
    for folder in folders:
        folder.mkdir()
        projects[str(folder)] = {"mcpServers": {"db": {"url": f"https://{folder.name}.example.org/mcp"}}}
    file.write_text(json.dumps({"projects": projects}))

    env.run("servers", "import", "--from", "claude-code", "--file", str(file))
    listed = [
        {
            name: row["state"]
            for line in env.run("servers", "list", "--json", "--cwd", str(folder)).stdout.splitlines()
            if (name := (row := json.loads(line))["server"]).startswith("db")
        }
        for folder in folders
    ]

    assert json.loads(env.user_file.read_text())["mcpServers"]["db-2"]["folders"] == [str(folders[1])]
    assert [[name for name, state in row.items() if state != "refused"] for row in listed] == [
        ["db"],
        ["db-2"],
    ]


def test_import_without_a_configuration_says_where_it_looked(env: Environment, tmp_path: Path):
    env.environ["HOME"] = str(tmp_path)
    done = env.run("servers", "import", "--from", "cursor")

    assert (done.returncode, str(tmp_path / ".cursor/mcp.json") in done.stderr) == (1, True)


def test_tools_lists_tools_and_failed_servers(env: Environment):
    env.own(c=counter_entry(), gone={"command": "no-such-program"})

    done = env.run("tools")

    assert "c.count" in done.stdout
    reason = "there is no such program. Install it, or correct the server's command."
    assert done.stderr.startswith(f"gone: Could not start 'no-such-program': {reason}")
    _, note = done.stderr.splitlines()
    assert all(name in note for name in AGENT_SERVERS)
    assert [tool["name"] for tool in env.read_lines("tools", "c")][:2] == ["c.count", "c.whoami"]


@pytest.mark.slow
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
    """What a command prints at a terminal, where a person gives this answer."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [HOLDFAST, *words], cwd=env.project, env=env.environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        printed, answered = b"", False
        try:
            while piece := os.read(ours, 65536):
                printed += piece
                # The command discards what is typed before its question.
                if not answered and b"decide later" in printed:
                    os.write(ours, answer)
                    answered = True
        except OSError:
            pass  # the other side of a terminal is gone
        process.wait(30)
    os.close(ours)
    return printed
