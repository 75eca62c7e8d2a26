import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.output import print_error
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from tests.cli.test_sessions import HOLDFAST, environment, run
from tests.commands import run_holdfast
from tests.journeys.editor import LIGHT_SERVER, SERVER


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("nope.x", "UNKNOWN_TOOL: There is no server 'nope' here."),
        (
            "fils.list",
            "UNKNOWN_TOOL: There is no server 'fils' here. Did you mean 'files'?",
        ),
        (
            "files.nope",
            "UNKNOWN_TOOL: There is no tool 'files.nope'. The tools of 'files' are: read, list, find, write, edit.",
        ),
        (
            "files.lst",
            "UNKNOWN_TOOL: There is no tool 'files.lst'. Did you mean 'files.list'?",
        ),
        ("shell.rum", "UNKNOWN_TOOL: There is no tool 'shell.rum'. Did you mean 'shell.run'?"),
        ("shel.run", "UNKNOWN_TOOL: There is no server 'shel' here. Did you mean 'shell'?"),
        (
            "tasks.add",
            (
                "UNKNOWN_TOOL: There is no tool 'tasks.add'. About the built-in server 'tasks': It needs a workspace."
                " To register the session's folder as one, run there: holdfast workspaces add ."
            ),
        ),
    ],
)
def test_an_unknown_tool_is_an_error_with_a_suggestion(tmp_path: Path, tool: str, message: str):
    done = run(tmp_path, "call", tool)

    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (1, "", f"Error: {message}")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("call", "files.lst"), "holdfast tools {options} files"),
        (("call", "nope.x"), "`holdfast tools {options}` lists"),
        (("call", "files.read", "{}"), "holdfast tools {options} files.read"),
        (("call", "other.x"), "holdfast servers approve {options}\n"),
        (("tools", "files.raed"), "holdfast tools {options} files"),
        (("tools", "other"), "holdfast servers approve {options}\n"),
        (("servers", "explain", "othr"), "`holdfast servers list {options}`"),
        (("servers", "approve", "other"), "holdfast servers approve {options} other --confined"),
    ],
)
def test_commands_in_messages_have_the_options_of_the_session(
    tmp_path: Path, words: tuple[str, ...], command: str
):
    project = tmp_path / "my project"
    project.mkdir()
    (project / ".mcp.json").write_text('{"mcpServers": {"other": {"command": "true"}}}')
    done = run(tmp_path, *words, "--cwd", str(project))

    assert command.format(options=f"--cwd '{project}'") in done.stdout + done.stderr


DOTS_SERVER = """
from light_server import LightServer, text_result

class Server(LightServer):
    def answer(self, request):
        if request.method == "tools/list":
            return {"tools": [{"name": "issue.show", "inputSchema": {"type": "object"}}]}
        return text_result(request.params["name"])

Server().run()
"""


@pytest.mark.parametrize("server", ["jira", "my.jira"])
def test_names_of_servers_and_tools_may_contain_dots(tmp_path: Path, server: str):
    (tmp_path / "server.py").write_text(DOTS_SERVER)
    entry = {
        "command": sys.executable,
        "args": [str(tmp_path / "server.py")],
        "env": {"PYTHONPATH": str(LIGHT_SERVER.parent)},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {server: entry}}))

    called = run(tmp_path, "call", f"{server}.issue.show")
    described = run(tmp_path, "tools", f"{server}.issue.show")
    unknown = run(tmp_path, "call", f"{server}.issue.shout")

    assert (called.returncode, called.stdout) == (0, "issue.show\n")
    assert described.stdout.splitlines()[0] == f"{server}.issue.show"
    assert f"Did you mean '{server}.issue.show'?" in unknown.stderr


def test_a_name_as_models_see_it_is_an_error_that_says_what_to_write(tmp_path: Path):
    done = run(tmp_path, "call", "files__list")

    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "Error: 'files__list' does not have the form SERVER.TOOL. Write files.list.",
    )


def test_a_server_that_does_not_answer_in_time_names_the_setting(tmp_path: Path):
    servers = tmp_path / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"mute": {"command": "sleep", "args": ["60"]}}}))
    environ = {
        **environment(tmp_path),
        "HOLDFAST_SERVERS_USER_FILE": str(servers),
        "HOLDFAST_LINKS_CONNECT_SECONDS": "1",
    }

    done = run_holdfast("call", "mute.x", env=environ)

    assert "within 1 s. If it needs more time, set links.connect_seconds in the settings." in done.stderr


@pytest.mark.parametrize("flag", [[], ["--json"]], ids=["text", "json"])
def test_a_tool_of_a_server_that_did_not_start_fails_with_the_reason(tmp_path: Path, flag: list[str]):
    servers = tmp_path / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}}}))
    environ = {**environment(tmp_path), "HOLDFAST_SERVERS_USER_FILE": str(servers)}

    done = run_holdfast("call", *flag, "gone.x", env=environ)

    reason = "'gone' is not available in this session. Could not start 'no-such-program'"
    if flag:
        printed = json.loads(done.stdout)
        assert (done.returncode, done.stderr) == (1, "")
        assert (printed["ok"], printed["code"], reason in printed["message"]) == (
            False,
            "SERVER_REFUSED",
            True,
        )
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"Error: SERVER_REFUSED: {reason}")
        assert done.stderr.endswith("Hint: `holdfast servers list` shows all servers.\n")


def test_json_prints_the_unchanged_result(tmp_path: Path):
    done = run(tmp_path, "call", "--json", "files.lst")

    assert (done.returncode, '"code": "UNKNOWN_TOOL"' in done.stdout, done.stderr) == (1, True, "")


def test_a_failure_of_a_built_in_tool_is_printed_as_error_and_hint(tmp_path: Path):
    done = run(tmp_path, "call", "files.read", '{"path": "nope"}')

    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (
        1,
        "",
        [
            "Error: NO_FILE: There is no file 'nope'.",
            "Hint: Use `list` or `find` to see the existing files.",
        ],
    )


@pytest.mark.promise("SES-05")
@pytest.mark.parametrize("flag", [[], ["--json"]], ids=["text", "json"])
def test_arguments_that_do_not_fit_the_schema_are_an_error_of_usage(tmp_path: Path, flag: list[str]):
    done = run(tmp_path, "call", *flag, "files.read", '{"lines": "many"}')

    assert done.returncode == 2
    if flag:
        assert (json.loads(done.stdout)["code"], done.stderr) == ("BAD_ARGUMENT", "")
    else:
        problem = "Error: BAD_ARGUMENT: files.read was not called: its arguments do not fit its schema. "
        assert (done.stdout, done.stderr.startswith(problem)) == ("", True)
        assert done.stderr.endswith("Hint: To see the tool's arguments: holdfast tools files.read\n")


def test_call_and_chat_report_a_missing_argument_in_the_same_words(tmp_path: Path):
    called = run(tmp_path, "call", "files.read", "{}").stderr
    chatted = run_holdfast(
        "chat", cwd=tmp_path, env=environment(tmp_path), input="/call files.read {}\n"
    ).stdout

    words = "files.read was not called: its arguments do not fit its schema. “path”: It is required."
    assert (words in called, words in chatted) == (True, True)


def test_arguments_that_are_not_json_are_an_error_of_usage(tmp_path: Path):
    done, other = (
        run(tmp_path, "call", "files.read", text) for text in ("README.md", "path=README.md lines=3")
    )

    problem = "Error: The arguments are not a JSON object. Write them like this: "
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == problem + """'{"key": "value"}'"""
    assert other.stderr.splitlines()[-1] == problem + """'{"path": "README.md", "lines": 3}'"""


def test_arguments_that_the_tool_itself_refuses_are_a_failure(tmp_path: Path):
    done = run(tmp_path, "call", "files.read", '{"path": "../x"}')

    assert (done.returncode, done.stderr.startswith("Error: ")) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_reach_a_pipe_but_not_a_terminal(tmp_path: Path, *, terminal: bool):
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


def test_errors_are_printed_without_control_characters(capsys: pytest.CaptureFixture[str]):
    print_error(HoldfastError(codes.BAD_ANSWER, "It said:\n  | \x1b[2J"))

    assert capsys.readouterr().err.startswith("Error: It said:\n  | \\u001b[2J\nHint: ")


def test_the_timeout_of_a_call_is_an_option_or_a_setting(tmp_path: Path):
    entry = {"command": sys.executable, "args": [str(SERVER)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))
    (tmp_path / "config.toml").write_text("[links]\ncall_seconds = 1\n")
    waiting = json.dumps({"started": str(tmp_path / "started"), "seconds": 5})

    answers = [run(tmp_path, "call", *said, "tools.wait", waiting) for said in ([], ["--timeout", "0.5"])]

    assert [(done.returncode, done.stdout + done.stderr) for done in answers] == [
        (1, f"Error: TIMEOUT: tools.wait did not answer within {seconds} s.\nHint: {codes.TIMEOUT.hint}\n")
        for seconds in (1, 0.5)
    ]


@pytest.mark.slow
def test_call_and_tools_leave_no_session_but_are_audited(tmp_path: Path):
    run(tmp_path, "call", "files.list")
    run(tmp_path, "tools")
    before = run(tmp_path, "sessions", "list", "--json").stdout
    audited = [json.loads(line) for line in run(tmp_path, "audit", "list", "--json").stdout.splitlines()]
    run(tmp_path, "call", "--keep", "files.list")
    kept = run(tmp_path, "sessions", "list", "--json").stdout.splitlines()

    assert (before, len(kept)) == ("", 1)
    assert [each["record"]["tool"] for each in audited if each["record"]["kind"] == "call"] == ["list"]


@pytest.mark.parametrize("envelope", ["content", "meta"])
def test_hint_at_the_shell_is_for_a_person_not_for_a_model(tmp_path: Path, envelope: str):
    script = tmp_path / "shop.py"
    script.write_text(
        "from holdfast.toolkit import Toolbox, ToolError\n"
        f"box = Toolbox('shop', envelope={envelope!r})\n"
        "@box.tool\n"
        "def order() -> None:\n"
        "    'Order something.'\n"
        "    raise ToolError('There is no cake.', sold=['bread', 'tea'])\n"
        "box.main()\n"
    )
    entry = {"command": sys.executable, "args": [str(script)], "pin_tools": False}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))

    done = run(tmp_path, "call", "shop.order")

    assert done.stderr.splitlines() == [
        "Error: TOOL_FAILED: There is no cake.",
        "- sold: bread, tea",
        "Hint: The server's log may say more: holdfast servers logs shop",
    ]
