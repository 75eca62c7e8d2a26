"""Prints the events of a conversation: in colour on a terminal, plain in a pipe."""

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator
from typing import Any, assert_never

from holdfast.cli.diff import diff_lines
from holdfast.cli.text import SUMMARY_LENGTH, replace_unprintable, summarize_arguments
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
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TrustLowered,
    TurnEnded,
    UnknownEvent,
)
from holdfast.model.event_text import (
    FileChange,
    PlanEntry,
    failure_code,
    file_change,
    plan_entries,
    stop_text,
    tool_name,
)
from holdfast.model.json import JsonObject

PROMPT = "› "
PROMPT_CONTINUATION = "… "
_OWN_LINE = re.compile(
    rf"[●{PROMPT[0]}{PROMPT_CONTINUATION[0]}]| {{1,2}}(?! )"
)  # how the chat's own lines begin
_MAX_DIFF_LINES = 40
_MAX_KIND = 80


class EventPrinter:
    """Prints text and events. Control characters in text from servers and models are replaced."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._console: Any = None
        self._at_line_start = True
        self._is_closed = False
        self._running: dict[str, ToolCalled] = {}
        if self.is_terminal:
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False)

    def print(self, text: str = "", style: str = "", *, end: str = "\n") -> None:
        """Print one line. Tabs become spaces; newlines and other control characters are replaced: a name may contain them."""
        self._write(_printable(text) + end, style)

    def print_lines(self, text: str, style: str = "", *, end: str = "\n") -> None:
        """Print a text that has several lines. Tabs become spaces, and other control characters are replaced."""
        self._write("\n".join(map(_printable, text.split("\n"))) + end, style)

    def _print_message(self, text: str, style: str = "") -> None:
        """Print a part of a message. Its lines may be from a server, so those that look like the chat's own get a bar."""
        first, *rest = text.split("\n")
        first = _mark_imitation(first) if self._at_line_start else first
        self.print_lines("\n".join([first, *map(_mark_imitation, rest)]), style, end="")

    def _write(self, shown: str, style: str) -> None:
        if self._is_closed or not shown:
            return
        self._at_line_start = shown.endswith("\n")
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
            # The reader or the terminal is gone. Continue without output.
            self._is_closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def new_line(self) -> None:
        """Start a new line, unless the cursor is at the start of one."""
        if not self._at_line_start:
            self.print()

    def show(self, event: Event) -> None:
        """Print an event."""
        match event:
            case Replied(text=text):
                self._print_message(text)
            case Thought(text=text):
                self._print_message(text, "dim italic")
            case Prompted(blocks=blocks):
                self.new_line()
                text = "\n".join(map(_block_text, blocks))
                self.print_lines(PROMPT + text.replace("\n", f"\n{PROMPT_CONTINUATION}"), "bold")
            case Planned():
                self.new_line()
                self.print_lines("\n".join(map(_plan_line, plan_entries(event))), "dim")
            case ToolCalled():
                self._show_call(event)
            case ToolEnded():
                self._show_result(event)
            case PermissionDecided(decision=Decision.REJECT, call_id=call_id):
                self.print(f"  {self._call_name(call_id)}rejected", "yellow")
            case TurnEnded(reason=reason):
                self.new_line()
                if text := stop_text(reason):
                    self.print(text, "yellow")
            case ModeChanged() | TrustLowered() | UnknownEvent():
                self.print(f"  {_describe_change(event)}", "yellow")
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

    def _show_call(self, event: ToolCalled) -> None:
        self._running[event.call_id] = event
        self.new_line()
        title = f"● {tool_name(event)} "
        self.print(title, "cyan", end="")
        # Print the arguments on one row of the terminal: a second row could look like another line of the chat.
        left = shutil.get_terminal_size().columns - len(title) if self.is_terminal else SUMMARY_LENGTH
        self.print(summarize_arguments(event.arguments, min(max(left, 1), SUMMARY_LENGTH)), "dim")

    def _show_result(self, event: ToolEnded) -> None:
        self.new_line()
        name = self._call_name(event.call_id)
        called = self._running.pop(event.call_id, None)
        match event.outcome:
            case Outcome.COMPLETED:
                self.print(f"  {name}✓", "green")
                for line in _first_diff_lines(file_change(called, event)):
                    self.print(f"    {line}", {"+": "green", "-": "red"}.get(line[:1], "dim"))
            case Outcome.CANCELLED:
                self.print(f"  {name}cancelled", "yellow")
            case Outcome.FAILED | Outcome.REFUSED:
                self.print(f"  {name}✗ {failure_code(event)}".rstrip(), "red")

    def _call_name(self, call_id: str) -> str:
        """If several calls are running, return the name of this call's tool and a space; else an empty text."""
        called = self._running.get(call_id)
        if called is None or len(self._running) == 1:
            return ""
        return f"{tool_name(called)} "


def _describe_change(event: ModeChanged | TrustLowered | UnknownEvent) -> str:
    match event:
        case ModeChanged(mode=mode):
            return f"mode is now {mode}"
        case TrustLowered(trust_level=trust):
            return f"trust is now {trust}"
        case UnknownEvent(kind=kind):
            return f"unknown event {kind[:_MAX_KIND]!r}, stored by a newer version of Holdfast"


def _mark_imitation(line: str) -> str:
    """Put a bar in front of a line that begins as the chat's own lines do."""
    return f"│ {line}" if _OWN_LINE.match(line) else line


def _printable(line: str) -> str:
    return replace_unprintable(line.replace("\t", "    "))


def _block_text(block: JsonObject) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{uri}]"
        case _:
            return f"[{block.get('type')}]"


def _plan_line(entry: PlanEntry) -> str:
    mark = "x" if entry.status == "completed" else " "
    return f"  [{mark}] {replace_unprintable(entry.content)}"


def _first_diff_lines(change: FileChange | None) -> Iterator[str]:
    lines = [*diff_lines(change)] if change is not None else []
    yield from lines[:_MAX_DIFF_LINES]
    if len(lines) > _MAX_DIFF_LINES:
        yield f"… and {len(lines) - _MAX_DIFF_LINES} more lines"
