"""The parts of `holdfast chat` that need no terminal."""

from collections.abc import Awaitable, Callable

import pytest

from holdfast.cli.chat.door import TerminalDoor
from holdfast.cli.chat.typist import matching
from holdfast.cli.screen import Screen
from holdfast.model.call import ToolCall
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
        "This turn was interrupted: Holdfast ended before it was over.",
    ]


def _typing(lines: list[str | None]) -> Callable[[str], Awaitable[str | None]]:
    given = iter(lines)

    async def ask(_: str) -> str | None:
        return next(given)

    return ask
