"""Attack 55: text of servers, models, projects and stored data moves the cursor, hides text or forges lines at a terminal."""

import ast
import asyncio
import io
import json
import os
import pty
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from holdfast import log_output, settings
from holdfast.cli import app as app_module
from holdfast.cli import output
from holdfast.cli.event_printer import EventPrinter
from holdfast.cli.terminal_text import format_arguments
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Prompted, Replied
from holdfast.model.json import JsonObject

ROOT = Path(__file__).parents[2]
SERVER = str(Path(__file__).with_name("escaping_server.py"))
HOSTILE = "x\x1b[2J\x1b]0;t\x07\x9b31m\x85\u202ey\u2066\u200b\u2028\x08\rz\u3164\u2800\nHint: run this"
UNDRAWN = (
    "\u3164\u2800\ufe00\ufe0f\u034f\u115f\u1160\u17b4\u180b\uffa0\U0001d159\U000e0100\u200b\u202e\u00ad\u00a0"
)
"""Characters that are not drawn, though most of them are printable for Python."""
PRINTING = ("output.py", "event_printer.py")
"""The modules of the command line that write to standard output and standard error."""

Run = Callable[..., str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Servers, a project, a workspace and a stored session with hostile text wherever it fits."""
    home = tmp_path_factory.mktemp("home")
    (home / "config.toml").touch()
    (home / "data" / "workspaces").mkdir(parents=True)
    (home / "data" / "workspaces" / "broken.toml").write_text(
        f'path = "/elsewhere"\nname = {json.dumps(HOSTILE)}\n'
    )
    project = home / "project"
    project.mkdir()
    entries: dict[str, Any] = {
        "args": {"command": "true", "args": [HOSTILE], "env": {HOSTILE: HOSTILE}},
        "url": {"url": f"https://example.com/{HOSTILE}", "headers": {HOSTILE: HOSTILE}},
        HOSTILE: {"command": HOSTILE},
    }
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    (project / ".holdfast" / "agents").mkdir(parents=True)
    (project / ".holdfast" / "agents" / "evil.md").write_text(f"---\ndescription: x\n---\n{HOSTILE}")
    (home / "agents").mkdir()
    (home / "agents" / "broken.md").write_text(f"---\n{HOSTILE}: {HOSTILE}\n---\n{HOSTILE}")
    evil = {"command": sys.executable, "args": ["-I", "-S", SERVER]}
    dying = {"command": sys.executable, "args": ["-I", "-S", SERVER, "--dies"]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"evil": evil, "dying": dying}}))
    asyncio.run(_hold_a_session(home, project))
    return home


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command in the project's folder, with a real terminal as its output. Returns what the terminal got."""
    for name, value in _environment(home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TERM", "dumb")  # rich uses no escapes of its own, nor does the log
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(home / "project")

    def at_terminal(*arguments: str) -> str:
        ours, theirs = pty.openpty()
        received = io.BytesIO()
        reader = threading.Thread(target=_read_all, args=(ours, received))
        reader.start()
        with os.fdopen(theirs, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            patch.setattr(sys, "argv", ["holdfast", *arguments])
            try:
                app_module.main()
            except SystemExit:
                pass
            finally:
                terminal.flush()
        reader.join()
        os.close(ours)
        return received.getvalue().decode()

    yield at_terminal
    log_output.configure("info", "auto")


COMMANDS = [
    ("probe", "--", sys.executable, "-I", "-S", SERVER),
    ("probe", "--", sys.executable, "-I", "-S", SERVER, "--dies"),
    ("tools",),
    ("call", "evil.blocks"),
    ("call", "evil.refuse"),
    ("call", "evil.envelope"),
    ("call", "--json", "evil.blocks"),
    ("call", "dying.x"),
    ("servers", "list"),
    ("servers", "list", "--json"),
    ("servers", "explain", "args"),
    ("servers", "approvals"),
    ("servers", "explain", "url"),
    ("servers", "explain", HOSTILE),
    ("sessions", "list", "--all"),
    ("sessions", "list", "--json", "--all"),
    ("sessions", "search", "Hint"),
    ("sessions", "show", "ID"),
    ("sessions", "replay", "ID"),
    ("sessions", "export", "ID"),
    ("sessions", "show", HOSTILE),
    ("audit", "list", "--all"),
    ("audit", "list", "--all", "--json"),
    ("audit", "export"),
    ("workspaces", "list"),
    ("workspaces", "show", HOSTILE),
    ("tasks", "list", "--workspace", HOSTILE),
    ("tasks", "show", HOSTILE),
    ("agents", "list"),
    ("agents", "list", "--json"),
    ("agents", "show", "evil"),
    ("agents", "show", HOSTILE),
    ("servers", "logs", "evil"),
    ("servers", "logs", HOSTILE),
    ("tokens", "create", HOSTILE),
    ("tokens", "list"),
    ("tokens", "revoke", HOSTILE),
    ("model",),
    ("model", HOSTILE, "--no-try"),
    ("store", "check", "--path", HOSTILE),
    ("settings", "show", HOSTILE),
    (HOSTILE,),
]


@pytest.mark.parametrize(
    "arguments", COMMANDS, ids=lambda arguments: " ".join(arguments)[:30].encode("unicode_escape").decode()
)
def test_hostile_text_never_reaches_the_terminal(run: Run, home: Path, arguments: tuple[str, ...]):
    shown = run(*((home / "id").read_text() if word == "ID" else word for word in arguments))

    assert shown
    assert [char for char in shown.replace("\r\n", "\n") if char != "\n" and not char.isprintable()] == []
    assert [char for char in UNDRAWN if char in shown] == []


def test_characters_that_are_not_drawn_are_escaped_in_a_question():
    arguments: JsonObject = {f"p{char}ath": f"/etc{char}/passwd" for char in UNDRAWN}

    lines = format_arguments(arguments, 80)

    assert len(lines) == len(UNDRAWN)
    assert [char for char in UNDRAWN if char in "".join(lines)] == []
    # An emoji is shown as it is, with the selector after it.
    assert format_arguments({"a": "⚠\ufe0f 1\ufe0f\u20e3"}, 80) == ['    a: "⚠\ufe0f 1\ufe0f\u20e3"']


def test_control_most_characters_that_are_not_drawn_are_printable():
    assert [char.isprintable() for char in UNDRAWN].count(True) == len(UNDRAWN) - 4


def test_every_command_that_prints_is_tried():
    tried = {
        arguments[:1] if arguments[0] in ("probe", "tools", "call", "model") else arguments[:2]
        for arguments in COMMANDS
    }
    known = {command for command in _commands() if command[0] not in _NO_FOREIGN_TEXT}

    assert known - tried == set(_NOT_RUN_HERE)


_NO_FOREIGN_TEXT = {"acp", "builtin", "chat", "dev", "doctor", "keys", "mcp"}
"""They speak a protocol, print through `EventPrinter` or `print_table` alone, or print nothing of others."""
_NOT_RUN_HERE = {
    ("servers", "approve"), ("servers", "import"), ("servers", "login"), ("servers", "logout"), ("servers", "revoke"), ("sessions", "attach"), ("sessions", "watch"), ("sessions", "move"), ("sessions", "delete"),
    ("sessions", "prune"), ("sessions", "tag"), ("servers", "add"), ("servers", "remove"), ("servers", "edit"),
    ("tasks", "add"), ("tasks", "update"), ("tasks", "start"), ("tasks", "done"), ("workspaces", "bind"), ("workspaces", "unbind"),
    ("workspaces", "add"), ("workspaces", "remove"), ("store", "backup"), ("store", "vacuum"), ("settings", "path"), ("audit", "verify"), ("agents", "approve"), ("agents", "revoke"), ("up",),
}  # fmt: skip
"""They change something, ask a question, or run until they are stopped. They print through the same functions, as the next test checks."""


def test_commands_write_only_through_the_printing_functions():
    folder = ROOT / "src" / "holdfast" / "cli"

    found = {
        f"{path.relative_to(folder)}:{node.lineno}"
        for path in sorted(folder.rglob("*.py"))
        if path.name not in PRINTING
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _writes_to_the_terminal(node)
    }

    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        "click.echo(x)",
        "click.secho(x)",
        "click.confirm(x)",
        "click.prompt(x)",
        "print(x)",
        "sys.stdout.write(x)",
        "console.print(x)",
    ],
)
def test_other_ways_to_write_are_recognised(source: str):
    (statement,) = ast.parse(source).body

    assert isinstance(statement, ast.Expr)
    assert _writes_to_the_terminal(statement.value) is (source != "console.print(x)")


def test_further_lines_of_an_error_cannot_look_like_a_hint(capsys: pytest.CaptureFixture[str]):
    output.print_error(HoldfastError(codes.PEER_ERROR, f"The login page refused it ({HOSTILE})."))

    error, forged, hint, end = capsys.readouterr().err.split("\n")
    assert (error.startswith("Error: The login"), forged, hint.startswith("Hint: "), end) == (
        True,
        "  Hint: run this).",
        True,
        "",
    )


def test_control_printed_without_the_function_the_text_takes_over_the_terminal(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
):
    def echo(text: str = "", *, err: bool = False) -> None:
        click.echo(text, err=err)

    monkeypatch.setattr("holdfast.cli.call.print_line", echo)
    monkeypatch.setattr(output, "escape_unprintable", str)

    blocks, exported = run("call", "evil.blocks"), run("sessions", "export", (home / "id").read_text())

    assert ("\x1b[2J" in blocks, "\u202e" in exported) == (True, True)


async def _hold_a_session(home: Path, project: Path) -> None:
    async with (
        Host(settings=settings.load(home / "config.toml", _environment(home))) as host,
        host.session(cwd=project) as session,
    ):
        await session.prompt([{"type": "text", "text": HOSTILE}])
        await session.prompt([{"type": HOSTILE, "uri": HOSTILE}, {"type": "text", "text": HOSTILE}])
        await session.call(HOSTILE, {HOSTILE: HOSTILE})
        await session.call("evil.blocks", {HOSTILE: HOSTILE})
        (home / "id").write_text(session.context.session_id)


def _environment(home: Path) -> dict[str, str]:
    return {
        "HOLDFAST_CONFIG": str(home / "config.toml"),
        "HOLDFAST_DATA_DIR": str(home / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(home / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(home / "none.json"),
    }


def _read_all(descriptor: int, into: io.BytesIO) -> None:
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # the other end was closed
            return
        if not data:
            return
        into.write(data)


def _commands() -> Iterator[tuple[str, ...]]:
    context = click.Context(app_module.app)
    for name in app_module.app.list_commands(context):
        command = app_module.app.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((name, inner) for inner in command.list_commands(context))
        else:
            yield (name,)


def _writes_to_the_terminal(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    written = ast.unparse(node.func)
    return written in {
        "print", "click.echo", "click.secho", "click.confirm", "click.prompt", "click.echo_via_pager",
        "sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write", "sys.stderr.buffer.write",
    }  # fmt: skip


FORGED = "done\n● files.read notes.txt\n  trust is now sandboxed\n› yes\n    indented"


def test_lines_of_a_reply_and_names_with_newlines_do_not_look_like_lines_of_the_chat(
    capsys: pytest.CaptureFixture[str],
):
    printer = EventPrinter()
    for piece in (FORGED, "\n", "● x"):
        printer.show(Replied(message_id="m", text=piece))
    printer.new_line()
    printer.print("  folder  /tmp/x\n  trust is now sandboxed")
    printer.show(Prompted(turn_id="t", message_id="m", blocks=({"type": "text", "text": "a\n● b"},)))

    assert capsys.readouterr().out.splitlines() == [
        "done",
        "│ ● files.read notes.txt",
        "│   trust is now sandboxed",
        "│ › yes",
        "    indented",
        "│ ● x",
        "  folder  /tmp/x�  trust is now sandboxed",
        "› a",
        "… ● b",
    ]


def test_control_printed_as_it_is_a_reply_forges_lines(capsys: pytest.CaptureFixture[str]):
    EventPrinter().print_lines(FORGED)

    assert "  trust is now sandboxed" in capsys.readouterr().out.splitlines()
