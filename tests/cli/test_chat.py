"""The parts of `holdfast chat` that need no terminal."""

import asyncio
import io
import json
import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.acp.modes import stored_mode
from holdfast.agent.manual import Manual
from holdfast.cli.arguments import in_full
from holdfast.cli.chat.behind import Behind, TurnOver
from holdfast.cli.chat.door import Ask, TerminalDoor
from holdfast.cli.chat.typist import Pipe, matching
from holdfast.cli.screen import Screen
from holdfast.host import Host, Opening
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Decision,
    Event,
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
from holdfast.model.json import JsonObject
from holdfast.session.permission import Mode
from holdfast.session.turn import APOLOGY, Conversation
from tests.cli.test_sessions import HOLDFAST, environment, home, listed, run

__all__ = ["home"]

CALL = ToolCall(call_id="call_1", server="files", tool="write")
WORDS = ("/call files.list", "/call files.read", "/tools", "/help")


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("/", "/", ["/call files.list", "/call files.read", "/help", "/tools"]),
        ("/to", "/to", ["/tools"]),
        ("/call files.", "files.", ["files.list", "files.read"]),
        ("/call files.list {", "{", []),
        ("hello", "hello", []),
    ],
)
def test_completion_goes_by_the_whole_line(line: str, text: str, expected: list[str]):
    assert matching(line, text, WORDS) == expected


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
async def test_only_a_clear_yes_is_a_yes(typed: list[str | None], decision: Decision):
    assert await TerminalDoor(_typing(typed)).permit(CALL, "Write a file") is decision


@pytest.mark.anyio
async def test_where_nobody_is_nobody_is_asked():
    door = TerminalDoor(None)

    assert (door.powers.permits, await door.permit(CALL, "")) == (False, Decision.REJECT)


def test_a_conversation_reads_as_it_was(capsys: pytest.CaptureFixture[str]):
    events: list[Event] = [
        Prompted(turn_id="t", message_id="m", blocks=({"type": "text", "text": "do it"}, {"type": "image"})),
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
    screen = Screen()

    for event in events:
        screen.show(event)

    assert capsys.readouterr().out.splitlines() == [
        "› do it",
        "[image]",
        "hm",
        "  [x] first",
        "  [ ] then",
        "I will.�[2J",
        '● a.b {"x": "' + "y" * 92 + "…",
        "● c.d {}",
        "  a.b ✓",
        "  ✗ NO_FILE",
        "This turn was interrupted before it was over.",
    ]


def test_a_pipe_gives_its_lines_and_what_is_no_text_does_not_end_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\r\n\xff two\nlast")))
    pipe = Pipe()

    assert [pipe.line(""), pipe.answer(""), pipe.line(""), pipe.line("")] == ["one", "� two", "last", None]


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch):
    with Path("/dev/zero").open(encoding="latin-1") as endless:
        monkeypatch.setattr("sys.stdin", endless)

        with pytest.raises(HoldfastError, match="A line of the input has 16777216 bytes or more"):
            Pipe().line("")


FULL = HoldfastError(codes.STORE_FULL, "No space is left.")


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (FULL, ("STORE_FULL", "No space is left.")),
        (ZeroDivisionError("a bug"), ("INTERNAL_ERROR", APOLOGY)),
    ],
    ids=["foreseen", "unforeseen"],
)
def test_a_prompt_that_fails_is_over_and_the_next_one_is_taken(
    failure: Exception, told: tuple[str, str], caplog: pytest.LogCaptureFixture
):
    async def life(behind: Behind) -> None:
        await behind.leaving.wait()

    async def fails() -> None:
        raise failure

    async def works() -> None:
        pass

    with caplog.at_level(logging.INFO), Behind(life) as behind:
        behind.start(fails)
        first = behind.wait()
        behind.start(works)
        second = behind.wait()

    assert isinstance(first, TurnOver)
    assert first.failure is not None
    assert (first.failure.code.name, first.failure.message) == told
    assert second == TurnOver()
    assert [record.exc_info for record in caplog.records] == ([] if failure is FULL else [None])


@pytest.mark.parametrize("server", ["evil", "files"])
def test_only_our_own_file_tools_show_a_diff(server: str, capsys: pytest.CaptureFixture[str]):
    diff: JsonObject = {"path": "/home/me/.bashrc", "old_text": "a\n", "new_text": "b\n"}
    screen = Screen()

    screen.show(ToolCalled(call_id="1", server=server, tool="write", arguments={}, kind="edit"))
    screen.show(ToolEnded(call_id="1", outcome=Outcome.COMPLETED, structured={"diff": diff}))
    screen.show(ToolEnded(call_id="2", outcome=Outcome.COMPLETED, structured={"diff": diff}))

    ours = ["    @@ -1 +1 @@", "    -a", "    +b"] if server == "files" else []
    assert capsys.readouterr().out.splitlines() == [f"● {server}.write {{}}", "  ✓", *ours, "  ✓"]


@pytest.mark.anyio
async def test_whoever_is_asked_sees_all_of_the_arguments():
    asked: list[tuple[str, str]] = []
    arguments = {"path": "a", "text": "\n".join(f"line {number} \x1b[2J\u202e" for number in range(100))}

    answers = iter(["v", "what?", "o"])

    async def ask(question: str, about: str) -> str | None:
        asked.append((question, about))
        return next(answers)

    await TerminalDoor(ask).permit(
        ToolCall(call_id="1", server="files", tool="write", arguments=json.dumps(arguments).encode()), ""
    )

    first, viewed, again = asked
    shown = [*first[1].split("\n")[:-1], *viewed[1].split("\n")]
    assert shown == [
        '    path: "a"',
        "    text:",
        *(f"    | line {number} \\u001b[2J\\u202e" for number in range(100)),
    ]
    assert first[1].endswith("\n    … 62 more lines are not shown yet")
    assert "[v]iew the other 62 lines, [o]nce" in first[0]
    assert ("[v]iew" in viewed[0], again) == (False, (viewed[0], ""))


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"short": "enough"}, []),
        (
            {"text": "x" * 50 + "› [o]nce" + "y" * 50},
            [
                '    text: "' + "x" * 29,
                "    ↪ " + "x" * 21 + "› [o]nce" + "y" * 5,
                "    ↪ " + "y" * 34,
                "    ↪ " + "y" * 11 + '"',
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
def test_arguments_in_full_never_begin_a_line_of_the_screen(arguments: dict[str, Any], lines: list[str]):
    assert in_full(arguments, 40) == lines


@pytest.mark.promise("ACP-09")
def test_the_mode_stays_with_the_session_unless_another_is_given(home: Path):
    write = '/call files.write {"path": "file", "text": "x"}\n'

    run(home, "chat", "--mode", "read-only", text=write)
    stored = listed(home, "--source", "chat")[0]["id"]
    refused = run(home, "chat", "--resume", stored, text=write)
    written = run(home, "chat", "--resume", stored, "--mode", "auto", text=write)
    again = run(home, "chat", "--resume", stored)

    assert "  mode     read-only: tools that may change something are refused\n" in refused.stdout
    assert "this session's mode is read-only" in refused.stdout.rpartition("Going on with")[2]
    assert "  mode     auto:" in written.stdout
    assert "  mode     auto:" in again.stdout
    assert (home / "file").read_text() == "x"


def test_a_chat_that_was_left_in_another_mode_by_an_editor_goes_on_in_it(home: Path):
    async def change() -> str:
        loaded = settings.load(home / "config.toml", environment(home))
        async with Host(settings=loaded) as host, host.session(cwd=home) as session:
            conversation = Conversation(session, Manual())
            await conversation.prompt([{"type": "text", "text": "hello"}])
            await conversation.change_mode(Mode.READ_ONLY)
            stored = await host.find(session.context.session_id)
        return f"{stored.context.session_id} {stored_mode(stored.settings)}"

    session_id, _, mode = asyncio.run(change()).partition(" ")
    done = run(home, "chat", "--resume", session_id)

    assert (mode, "  mode     read-only:" in done.stdout) == ("read-only", True)


def test_the_latest_chat_is_found_behind_many_in_which_nothing_was_said(home: Path):
    folder = home.parent / "one"

    async def open_many() -> None:
        loaded = settings.load(home / "config.toml", environment(home))
        async with Host(settings=loaded) as host:
            for _ in range(51):
                await host.close_session(await host.open(Opening(cwd=folder)))

    asyncio.run(open_many())
    done = run(home, "chat", "--resume", cwd=folder)

    assert (done.returncode, "Going on with 'the login bug'." in done.stdout) == (0, True), done.stderr


@pytest.mark.promise("ACP-03")
def test_other_directories_are_named_again_when_a_session_is_gone_on_with(home: Path, tmp_path: Path):
    folder, other, third = tmp_path / "project", tmp_path / "other one", tmp_path / "third"
    for made in (folder, other, third):
        made.mkdir()
    (other / "file").write_text("there")
    read = f'/call files.read {{"path": "{other}/file"}}\n'

    begun = run(home, "chat", "--also", "../other one", "--also", str(third), cwd=folder, text=read)
    without = run(home, "chat", "--resume", cwd=folder, text=read)
    again = run(home, "chat", "--resume", "--also", str(other), cwd=folder, text=read)

    assert (f"also     {other}" in begun.stdout, "there" in begun.stdout) == (True, True)
    assert "OUTSIDE_ROOTS" in without.stdout
    assert (
        f"It also had {other}, {third}. To have that again: --also '{other}' --also {third}" in without.stdout
    )
    assert ("there" in again.stdout, f"also     {other}" in again.stdout) == (True, True)


@pytest.mark.promise("ACP-03")
def test_a_chat_gets_no_folder_of_holdfasts_own_and_none_that_is_not_there(home: Path, tmp_path: Path):
    data, gone = home / "data", tmp_path / "gone"
    gone.mkdir()
    in_vain = [
        run(home, "chat", cwd=data),
        run(home, "chat", "--also", str(data)),
        run(home, "chat", "--also", "nowhere"),
        subprocess.run(
            ["sh", "-c", f'rmdir "{gone}"; exec "{HOLDFAST}" chat'],
            cwd=gone,
            env=environment(home),
            capture_output=True,
            text=True,
            check=False,
        ),
    ]

    assert [done.returncode for done in in_vain] == [1] * 4
    assert [done.stderr.splitlines()[0] for done in in_vain] == [
        f"Error: --cwd: '{data}' is Holdfast's own and cannot be granted. Name another folder.",
        f"Error: --also: '{data}' is Holdfast's own and cannot be granted. Name another folder.",
        f"Error: --also: there is no folder that can be read at '{home}/nowhere'.",
        f"Error: The folder that you are in, '{gone}', is not there any more. Go to another.",
    ]


def _typing(lines: list[str | None]) -> Ask:
    given = iter(lines)

    async def ask(question: str, about: str) -> str | None:
        return next(given)

    return ask
