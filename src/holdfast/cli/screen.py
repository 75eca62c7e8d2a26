"""A conversation on a terminal, event by event: coloured for a person, plain for a pipe."""

import difflib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any, assert_never

from holdfast.cli.arguments import in_short
from holdfast.cli.table import plain
from holdfast.model.event import (
    Decision,
    Event,
    ModeChanged,
    Outcome,
    PermissionDecided,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    SessionOpened,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TrustLowered,
    TurnEnded,
)
from holdfast.model.json import JsonObject

PROMPT = "› "
MORE = "… "
_DIFF_LINES = 40


class Screen:
    """Prints. What servers and models say is shown, and never steers the terminal."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._console: Any = None
        self._fresh = True
        self._gone = False
        self._running: dict[str, ToolCalled] = {}
        if self.is_terminal:
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False)

    def say(self, text: str = "", style: str = "", *, end: str = "\n") -> None:
        """Print some text; its line ends and tabs count, anything else that steers does not."""
        shown = "\n".join(map(_visible, text.split("\n"))) + end
        if self._gone or not shown:
            return
        self._fresh = shown.endswith("\n")
        try:
            if self._console is None:
                sys.stdout.write(shown)
                sys.stdout.flush()
            else:
                from rich.text import Text

                self._console.print(Text(shown, style=style), end="", soft_wrap=True)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            # Nobody reads any more, or the terminal is closed; what was asked for is done all the same.
            self._gone = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def new_line(self) -> None:
        """Begin a line, unless one has just begun."""
        if not self._fresh:
            self.say()

    async def live(self, event: Event) -> None:
        """Show an event as it happens; what the person typed stands there already."""
        if not isinstance(event, Prompted):
            self.show(event)

    def show(self, event: Event) -> None:
        """Show an event of a conversation."""
        match event:
            case Replied(text=text):
                self.say(text, end="")
            case Thought(text=text):
                self.say(text, "dim italic", end="")
            case Prompted(blocks=blocks):
                self.new_line()
                self.say(PROMPT + "\n".join(map(_block, blocks)), "bold")
            case Planned(entries=entries):
                self.new_line()
                self.say("\n".join(map(_entry, entries)), "dim")
            case ToolCalled():
                self._called(event)
            case ToolEnded():
                self._ended(event)
            case PermissionDecided(decision=Decision.REJECT, call_id=call_id):
                self.say(f"  {self._which(call_id)}rejected", "yellow")
            case TurnEnded(reason=reason):
                self._turn_ended(reason)
            case ModeChanged(mode=changed) | TrustLowered(trust_level=changed):
                self.say(f"  from here on: {changed}", "yellow")
            case (
                SessionOpened()
                | SessionClosed()
                | ServersResolved()
                | Titled()
                | ToolStarted()
                | PermissionDecided()
            ):
                pass
            case _:
                assert_never(event)

    def _called(self, event: ToolCalled) -> None:
        name = f"{event.server}.{event.tool}"
        self._running[event.call_id] = event
        self.new_line()
        self.say(f"● {name} ", "cyan", end="")
        self.say(in_short(event.arguments), "dim")

    def _ended(self, event: ToolEnded) -> None:
        self.new_line()
        which = self._which(event.call_id)
        called = self._running.pop(event.call_id, None)
        match event.outcome:
            case Outcome.COMPLETED:
                self.say(f"  {which}✓", "green")
                for line in _diff(event.structured) if _changes_files(called) else ():
                    self.say(f"    {line}", {"+": "green", "-": "red"}.get(line[:1], "dim"))
            case Outcome.CANCELLED:
                self.say(f"  {which}cancelled", "yellow")
            case Outcome.FAILED | Outcome.REFUSED:
                code = event.code or _code(event.structured)
                self.say(f"  {which}✗ {code}".rstrip(), "red")

    def _turn_ended(self, reason: StopReason) -> None:
        self.new_line()
        match reason:
            case StopReason.CANCELLED:
                self.say("Cancelled.", "yellow")
            case StopReason.INTERRUPTED:
                self.say("This turn was interrupted before it was over.", "yellow")
            case StopReason.END_TURN:
                pass
            case StopReason.MAX_TOKENS | StopReason.MAX_TURN_REQUESTS | StopReason.REFUSAL:
                self.say(f"The turn ended early: {reason}.", "yellow")

    def _which(self, call_id: str) -> str:
        """The call's name, where it might be another's."""
        called = self._running.get(call_id)
        if called is None or len(self._running) == 1:
            return ""
        return f"{called.server}.{called.tool} "


def _visible(line: str) -> str:
    return plain(line.replace("\t", "    "))


def _block(block: JsonObject) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{uri}]"
        case _:
            return f"[{block.get('type')}]"


def _entry(entry: JsonObject) -> str:
    mark = "x" if entry.get("status") == "completed" else " "
    return f"  [{mark}] {entry.get('content', '')}"


def _changes_files(called: ToolCalled | None) -> bool:
    """Whether this is our own file tools' call: no other server has their name, or may say that it edits."""
    return called is not None and called.server == "files" and called.kind == "edit"


def _diff(structured: Any) -> Iterator[str]:
    match structured:
        case {"diff": {"new_text": str(new), **rest}}:
            old = rest.get("old_text")
            before = old.splitlines() if isinstance(old, str) else []
            lines = [*difflib.unified_diff(before, new.splitlines(), lineterm="", n=1)][2:]
            yield from lines[:_DIFF_LINES]
            if len(lines) > _DIFF_LINES:
                yield f"… and {len(lines) - _DIFF_LINES} lines more"
        case _:
            pass


def _code(structured: Any) -> str:
    match structured:
        case {"code": str(code)}:
            return code
        case _:
            return ""
