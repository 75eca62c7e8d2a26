"""`holdfast chat` without a terminal."""

import asyncio
import io
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.cli.chat.door import Ask, TerminalDoor
from holdfast.cli.chat.input import MAX_LINE_BYTES, Completions, PipeInput
from holdfast.cli.chat.own_chat import ChatOptions, OwnChat
from holdfast.cli.event_printer import EventPrinter
from holdfast.cli.terminal_text import format_arguments
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Decision,
    Event,
    ModeChanged,
    Outcome,
    Planned,
    Prompted,
    Replied,
    StopReason,
    Thought,
    ToolCalled,
    ToolEnded,
    TurnEnded,
)
from holdfast.model.event_text import FileChange
from holdfast.model.ids import new_session_id
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.session.attachment import Attachment
from holdfast.session.permission import stored_mode
from holdfast.session.subscription import EventFeed
from holdfast.session.turns import INTERNAL_ERROR_REPLY, TurnResult
from holdfast.store.sqlite import SqliteStore
from tests.cli.test_sessions import HOLDFAST, environment, home, listed, run
from tests.journeys.vt100 import Screen
from tests.store.disks import FailingReads

__all__ = ["home"]

CALL = ToolCall(call_id="call_1", server="files", tool="write")
COMPLETIONS = Completions(
    commands={"/call": "Call a tool", "/tools": "List the tools", "/help": ""},
    arguments={
        "/call": {"files.list": "List\x1b[2J a folder", "files.read": "", "evil\x1b[2J": ""},
        "/tools": {"files": ""},
    },
    tool_arguments={"files.read": ("path", "lines")}.__getitem__,
)


@pytest.mark.parametrize(
    ("line", "word", "found"),
    [
        ("/", "/", ["/call", "/help", "/tools"]),
        ("/to", "/to", ["/tools"]),
        ("/call ", "", ["files.list", "files.read"]),
        ("/call  files.", "files.", ["files.list", "files.read"]),
        ("/tools f", "f", ["files"]),
        ("/call files.read ", "", ['{"lines": ', '{"path": ']),
        ("/call files.read {", "{", ['{"lines": ', '{"path": ']),
        ('/call files.read {"pa', '{"pa', ['{"path": ']),
        ('/call files.read {"path": "a, b", ', "", ['"lines": ']),
        ('/call files.read {"path": "a", "l', '"l', ['"lines": ']),
        ('/call files.read {"path": "a', 'files.read {"path": "a', []),
        ("hello", "hello", []),
        ("hello f", "f", []),
    ],
)
def test_completion_depends_on_the_command(line: str, word: str, found: list[str]):
    completed, words = COMPLETIONS.find(line)

    assert (completed, list(words)) == (word, found)


def test_completion_offers_no_control_characters():
    _, words = COMPLETIONS.find("/call ")

    assert words == {"files.list": "List�[2J a folder", "files.read": ""}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        (["o"], Decision.ALLOW_ONCE),
        (["Always"], Decision.ALLOW_ALWAYS),
        (["n"], Decision.REJECT),
        (["", "what?", " y "], Decision.ALLOW_ONCE),
        ([None], Decision.REJECT),
    ],
)
async def test_only_a_clear_yes_allows_a_call(typed: list[str | None], decision: Decision):
    assert (
        await TerminalDoor(_typing(typed)).request_permission(
            PermissionQuestion(call=CALL, title="Write a file", can_remember=True)
        )
        is decision
    )


@pytest.mark.anyio
@pytest.mark.promise("SES-04")
async def test_always_is_not_an_answer_after_an_ask_rule():
    questions: list[str] = []
    answers = iter(["a", "always", "o"])

    async def ask(question: str, about: str) -> str | None:
        questions.append(question)
        return next(answers)

    decision = await TerminalDoor(ask).request_permission(
        PermissionQuestion(call=CALL, title="Send a mail", can_remember=False)
    )

    expected = "  Send a mail needs your permission for every call. [o]nce, [r]eject? "
    assert (decision, questions) == (Decision.ALLOW_ONCE, [expected] * 3)


@pytest.mark.anyio
async def test_without_a_user_every_request_is_rejected():
    door = TerminalDoor(None)

    assert (
        door.capabilities.permission,
        await door.request_permission(PermissionQuestion(call=CALL, title="", can_remember=True)),
    ) == (
        False,
        Decision.REJECT,
    )


def test_a_conversation_is_printed_event_by_event(capsys: pytest.CaptureFixture[str]):
    events: list[Event] = [
        Prompted(
            turn_id="t",
            message_id="m",
            blocks=(
                {"type": "text", "text": "do it"},
                {"type": "image"},
                {"type": "resource_link", "uri": "file:///notes.md", "name": "notes"},
                {"type": "resource", "resource": {"uri": "file:///main.py", "text": "x = 1"}},
            ),
        ),
        Thought(message_id="m", text="hm"),
        Planned(
            entries=({"content": "first", "status": "completed"}, {"content": "then", "status": "pending"})
        ),
        Replied(message_id="m", text="I "),
        Replied(message_id="m", text="will.\x1b[2J"),
        ToolCalled(call_id="1", server="a", tool="b", arguments={"x": "y" * 200}),
        ToolCalled(call_id="2", server="c", tool="d", arguments={}),
        ToolEnded(call_id="1", outcome=Outcome.COMPLETED),
        ToolEnded(call_id="2", outcome=Outcome.FAILED, structured={"code": "NO_FILE"}),
        TurnEnded(turn_id="t", reason=StopReason.INTERRUPTED),
    ]
    printer = EventPrinter()

    for event in events:
        printer.show(event)

    assert capsys.readouterr().out.splitlines() == [
        "› do it",
        "… [image]",
        "… [file:///notes.md]",
        "… [file:///main.py]",
        "hm",
        "  [x] first",
        "  [ ] then",
        "I will.�[2J",
        '● a.b {"x": "' + "y" * 92 + "…",
        "● c.d {}",
        "  a.b ✓",
        "  ✗ NO_FILE",
        "This turn was interrupted before it ended.",
    ]


class _TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_reply_in_pieces_is_printed_row_by_row_above_an_open_prompt(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    stream, screen = _TerminalStream(), Screen()
    printer = EventPrinter(stream)

    def shown() -> list[str]:
        screen.feed(stream.getvalue().replace("\n", "\r\n").encode())
        stream.seek(0)
        stream.truncate()
        return screen.text.rstrip("\n").splitlines()

    printer.show(Replied(message_id="m", text="one tw"))
    assert shown() == ["one tw"]
    printer.prepare_prompt()  # a prompt is opened
    printer.prints_whole_rows = True
    assert shown() == []
    for piece in ("o three", " four fi", "ve\nsix"):
        printer.show(Replied(message_id="m", text=piece))
    assert shown() == ["one two three four", "five"]
    printer.prints_whole_rows = False  # the prompt is closed
    printer.show(Replied(message_id="m", text=" seven"))
    assert shown() == ["one two three four", "five", "six seven"]
    printer.prints_whole_rows = True
    printer.show(ModeChanged(mode="auto"))
    assert shown()[-2:] == ["six seven", "  mode is now auto"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["pipe", "file"])
async def test_lines_are_read_from_a_pipe_and_from_a_file(tmp_path: Path, kind: str):
    text = b"one\r\n\xff two\n/call a.b {\n1}\n\nlast"
    if kind == "file":
        (tmp_path / "input").write_bytes(text)
        descriptor = os.open(tmp_path / "input", os.O_RDONLY)
    else:
        descriptor, writer = os.pipe()
        os.write(writer, text)
        os.close(writer)
    lines = PipeInput(descriptor)

    read = [await lines.read_prompt() for _ in range(6)]

    os.close(descriptor)
    assert read == ["one", "� two", "/call a.b {\n1}", "", "last", None]


@pytest.mark.anyio
async def test_the_event_loop_runs_while_a_pipe_is_empty():
    reader, writer = os.pipe()
    lines = PipeInput(reader)
    waiting = asyncio.create_task(lines.read_prompt())
    await asyncio.sleep(0)

    os.write(writer, b"half")
    await asyncio.sleep(0)
    os.write(writer, b" a line\n")

    assert await waiting == "half a line"
    os.close(reader)
    os.close(writer)


@pytest.mark.anyio
async def test_a_line_without_end_is_refused():
    too_long = f"A line of the input is too long: {MAX_LINE_BYTES} bytes or more"
    with Path("/dev/zero").open("rb") as endless, pytest.raises(HoldfastError, match=too_long):
        await PipeInput(endless.fileno()).read_prompt()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("failure", "printed"),
    [
        (HoldfastError(codes.STORE_FULL, "No space is left."), "No space is left."),
        (ZeroDivisionError("a bug"), INTERNAL_ERROR_REPLY),
    ],
    ids=["expected", "unexpected"],
)
async def test_a_chat_goes_on_after_a_prompt_that_failed(
    failure: Exception,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    home: Path,
):
    prompts = iter([failure, None])

    async def prompt(self: Attachment, blocks: object) -> TurnResult:
        if (failed := next(prompts)) is not None:
            raise failed
        return TurnResult(reason=StopReason.END_TURN, last_seq=0)

    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\n")
    os.close(writer)
    monkeypatch.setattr(Attachment, "prompt", prompt)
    monkeypatch.setattr("holdfast.cli.chat.chat.PipeInput", lambda: PipeInput(reader))
    loaded = settings.load(home / "config.toml", environment(home))

    code = await OwnChat(ChatOptions(settings=loaded, open_options=OpenOptions(cwd=home))).run()

    os.close(reader)
    assert (code, next(prompts, "no prompt is left")) == (1, "no prompt is left")
    assert f"Error: {printed}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_chat_without_a_terminal_does_not_import_the_line_editor(home: Path):
    code = (
        "import sys; from holdfast.cli import main\n"
        "sys.argv = ['holdfast', 'chat']\n"
        "try: main()\n"
        "except SystemExit: print('imported:', 'prompt_toolkit' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        input="/servers\n",
        capture_output=True,
        text=True,
        cwd=home,
        env=environment(home),
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "imported: False"


@pytest.mark.parametrize("server", ["evil", "files"])
def test_only_the_built_in_file_tools_print_a_diff(server: str, capsys: pytest.CaptureFixture[str]):
    diff: JsonObject = {"path": "/home/me/.bashrc", "old_text": "a\n", "new_text": "b\n"}
    printer = EventPrinter()

    printer.show(ToolCalled(call_id="1", server=server, tool="write", arguments={}, kind="edit"))
    printer.show(ToolEnded(call_id="1", outcome=Outcome.COMPLETED, structured={"diff": diff}))
    printer.show(ToolEnded(call_id="2", outcome=Outcome.COMPLETED, structured={"diff": diff}))

    ours = ["    @@ -1 +1 @@", "    -a", "    +b"] if server == "files" else []
    assert capsys.readouterr().out.splitlines() == [f"● {server}.write {{}}", "  ✓", *ours, "  ✓"]


@pytest.mark.anyio
@pytest.mark.promise("SES-05")
@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (None, "a\nb\n", ["/p/f (new file)", "@@ -0,0 +1,2 @@", "+a", "+b"]),
        ("a\nb\nc\n", "a\nB\x1b\rx\nc\n", ["/p/f", "@@ -1,3 +1,3 @@", " a", "-b", "+B\\u001b\\rx", " c"]),
        ("a\n", "a", ["/p/f", "@@ -1 +1,2 @@", " a", "+\\ No newline at end of file"]),
        ("a\n", "a\n", ["/p/f", "(the content stays the same)"]),
    ],
    ids=["new file", "changed line", "line end", "no change"],
)
async def test_a_permission_question_shows_the_change_instead_of_the_arguments(
    old: str | None, new: str, shown: list[str]
):
    asked: list[str] = []

    async def ask(question: str, about: str) -> str | None:
        asked.append(about)
        return "r"

    change = FileChange(path="/p/f", old_text=old, new_text=new)
    question = PermissionQuestion(call=CALL, title="files.write", can_remember=True, change=change)
    await TerminalDoor(ask).request_permission(question)

    assert asked == ["\n".join(f"    {line}" for line in shown)]


@pytest.mark.anyio
async def test_a_permission_question_shows_all_lines_of_a_long_change():
    asked: list[str] = []
    answers = iter(["v", "r"])

    async def ask(question: str, about: str) -> str | None:
        asked.append(about)
        return next(answers)

    old, new = ["\n".join(f"{kind} {number}" for number in range(700)) for kind in ("old", "new")]
    change = FileChange(path="/p/f", old_text=old, new_text=new)
    await TerminalDoor(ask).request_permission(
        PermissionQuestion(call=CALL, title="files.write", can_remember=True, change=change)
    )

    lines = [line.strip() for about in asked for line in about.split("\n")]
    assert {f"-old {number}" for number in range(700)} | {f"+new {number}" for number in range(700)} <= {
        *lines
    }


@pytest.mark.anyio
async def test_a_permission_question_shows_all_arguments():
    asked: list[tuple[str, str]] = []
    arguments = {"path": "a", "text": "\n".join(f"line {number} \x1b[2J\u202e" for number in range(100))}

    answers = iter(["v", "what?", "o"])

    async def ask(question: str, about: str) -> str | None:
        asked.append((question, about))
        return next(answers)

    call = ToolCall(call_id="1", server="files", tool="write", arguments=json.dumps(arguments).encode())
    await TerminalDoor(ask).request_permission(PermissionQuestion(call=call, title="", can_remember=True))

    first, viewed, again = asked
    shown = [*first[1].split("\n")[:-1], *viewed[1].split("\n")]
    assert shown == [
        '    path: "a"',
        "    text:",
        *(f"    | line {number} \\u001b[2J\\u202e" for number in range(100)),
    ]
    assert first[1].endswith("\n    … 62 more lines not shown yet")
    assert "[v]iew the other 62 lines, [o]nce" in first[0]
    assert ("[v]iew" in viewed[0], again) == (False, (viewed[0], "  Type o, a or r."))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("columns", "question"),
    [
        (120, "  fm.ask “Ask” may change something. [o]nce, [a]lways in this session, [r]eject? "),
        (80, "  fm.ask “Ask” may change something.\n  [o]nce, [a]lways in this session, [r]eject? "),
        (
            40,
            "  fm.ask “Ask” may change something.\n  [o]nce, [a]lways in this session, \n    ↪ [r]eject? ",
        ),
    ],
)
async def test_a_permission_question_breaks_between_words(
    columns: int, question: str, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []

    async def ask(question: str, about: str) -> str | None:
        asked.append(question)
        return "r"

    monkeypatch.setenv("COLUMNS", str(columns))
    await TerminalDoor(ask).request_permission(
        PermissionQuestion(call=CALL, title="fm.ask “Ask”", can_remember=True)
    )

    assert asked == [question]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"short": "enough"}, ['    short: "enough"']),
        (
            {"text": "x" * 50 + "› [o]nce" + "y" * 50},
            [
                '    text: "' + "x" * 29,
                "    ↪ " + "x" * 21 + "› ",  # broken between words
                "    ↪ [o]nce" + "y" * 28,
                "    ↪ " + "y" * 22 + '"',
            ],
        ),
        (
            {"not a\nname": {"deep": [1, "two" * 30]}},
            [
                '    "not a\\nname": {',
                '      "deep": [',
                "        1,",
                '        "twotwotwotwotwotwotwotwotwotwot',
                "    ↪ wotwotwotwotwotwotwotwotwotwotwotw",
                '    ↪ otwotwotwotwotwotwotwotwo"',
                "      ]",
                "    }",
            ],
        ),
    ],
    ids=["short", "folded", "deep"],
)
def test_wrapped_arguments_never_look_like_a_new_line(arguments: dict[str, Any], lines: list[str]):
    assert format_arguments(arguments, 40) == lines


@pytest.mark.slow
@pytest.mark.promise("ACP-09")
def test_a_resumed_session_keeps_its_mode_unless_another_is_given(home: Path):
    write = '/call files.write {"path": "file", "text": "x"}\n'

    run(home, "chat", "--mode", "read-only", text=write)
    stored = listed(home, "--source", "chat")[0]["id"]
    refused = run(home, "chat", "--resume", stored, text=write)
    written = run(home, "chat", "--resume", stored, "--mode", "auto", text=write)
    again = run(home, "chat", "--resume", stored)

    assert "  mode     read-only: tools that may change something are refused\n" in refused.stderr
    assert "this session's mode is read-only" in refused.stdout
    assert "  mode     auto:" in written.stderr
    assert "  mode     auto:" in again.stderr
    assert (home / "file").read_text() == "x"


def test_a_resumed_chat_keeps_the_mode_that_an_editor_set(home: Path):
    async def change() -> str:
        loaded = settings.load(home / "config.toml", environment(home))
        async with Host(settings=loaded) as host, host.session(cwd=home) as session:
            await session.prompt([{"type": "text", "text": "hello"}])
            await session.permission.change_mode(Mode.READ_ONLY)
            stored = await host.find_session(session.context.session_id)
        return f"{stored.context.session_id} {stored_mode(stored.settings)}"

    session_id, _, mode = asyncio.run(change()).partition(" ")
    done = run(home, "chat", "--resume", session_id)

    assert (mode, "  mode     read-only:" in done.stderr) == ("read-only", True)


@pytest.mark.slow
def test_resume_skips_sessions_without_a_prompt(home: Path):
    folder = home.parent / "one"

    async def open_many() -> None:
        loaded = settings.load(home / "config.toml", environment(home))
        async with Host(settings=loaded) as host:
            for _ in range(51):
                await (await host.open(OpenOptions(cwd=folder))).close()

    asyncio.run(open_many())
    done = run(home, "chat", "--resume", cwd=folder)

    assert (done.returncode, "Resuming 'the login bug'." in done.stderr) == (0, True), done.stderr


@pytest.mark.slow
@pytest.mark.promise("ACP-03")
def test_a_resumed_session_names_the_folders_to_grant_again(home: Path, tmp_path: Path):
    folder, other, third = tmp_path / "project", tmp_path / "other one", tmp_path / "third"
    for made in (folder, other, third):
        made.mkdir()
    (other / "file").write_text("there")
    read = f'/call files.read {{"path": "{other}/file"}}\n'

    begun = run(home, "chat", "--also", "../other one", "--also", str(third), cwd=folder, text=read)
    without = run(home, "chat", "--resume", cwd=folder, text=read)
    again = run(home, "chat", "--resume", "--also", str(other), cwd=folder, text=read)

    assert (f"\n           {other}\n" in begun.stderr, "there" in begun.stdout) == (True, True)
    assert "OUTSIDE_ROOTS" in without.stdout
    assert (
        f"The session also used {other}, {third}. To allow these folders again, resume it with --also '{other}' --also {third}"
        in without.stderr
    )
    assert ("there" in again.stdout, f"\n           {other}\n" in again.stderr) == (True, True)


@pytest.mark.slow
@pytest.mark.promise("ACP-03")
def test_a_chat_refuses_missing_folders_and_those_of_holdfast(home: Path, tmp_path: Path):
    data, gone = home / "data", tmp_path / "gone"
    gone.mkdir()
    refused = [
        run(home, "chat", cwd=data),
        run(home, "chat", "--also", str(data)),
        run(home, "chat", "--also", "nowhere"),
        subprocess.run(
            ["sh", "-c", f'rmdir "{gone}"; exec "{sys.executable}" "{HOLDFAST}" chat'],
            cwd=gone,
            env=environment(home),
            capture_output=True,
            text=True,
            check=False,
        ),
    ]

    assert [done.returncode for done in refused] == [1] * 4
    assert [done.stderr.splitlines()[0] for done in refused] == [
        f"Error: --cwd: '{data}' is one of Holdfast's own folders. Use another folder.",
        f"Error: --also: '{data}' is one of Holdfast's own folders. Use another folder.",
        f"Error: --also: '{home}/nowhere' is not a readable folder.",
        f"Error: The current folder, '{gone}', no longer exists.",
    ]


def _typing(lines: list[str | None]) -> Ask:
    given = iter(lines)

    async def ask(question: str, about: str) -> str | None:
        return next(given)

    return ask


@pytest.mark.anyio
@pytest.mark.promise("SES-02")
async def test_chat_says_that_the_rest_cannot_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    loaded = settings.load(tmp_path / "config.toml", environment(tmp_path))
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        feed = EventFeed(new_session_id(), store)
        feed.advance(1)  # an event is stored, and not in memory
        FailingReads(store, code=sqlite3.SQLITE_CORRUPT, times=1)
        chat = OwnChat(ChatOptions(settings=loaded, open_options=OpenOptions()))
        await chat._show_events(feed.subscribe())

    error, hint = capsys.readouterr().err.strip().splitlines()
    assert error.startswith(
        "Error: The rest of this session cannot be shown, because its events cannot be read."
    )
    assert hint == "Hint: Leave with /quit. To continue the session later: holdfast chat --resume"
