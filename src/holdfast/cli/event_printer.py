"""Prints the events of a conversation: in colour on a terminal, plain in a pipe."""

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, assert_never

from holdfast.cli.diff import diff_lines
from holdfast.cli.terminal_text import (
    SUMMARY_CELLS,
    cell_width,
    printable,
    shorten,
    summarize_arguments,
    wrap,
)
from holdfast.model.event import (
    Decision,
    Event,
    HistoryCompacted,
    MessageReceived,
    MessageSent,
    ModeChanged,
    ModelResponded,
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
    received_text,
    stop_text,
    tool_name,
)
from holdfast.model.json import JsonObject
from holdfast.store.end_interrupted import INTERRUPTED, describe_interrupted
from holdfast.store.types import StoredEvent

PROMPT = "› "
PROMPT_CONTINUATION = "… "
# How the lines begin that the chat itself prints: calls, prompts, and indented results.
_CHAT_LINE = re.compile(rf"[●{PROMPT[0]}{PROMPT_CONTINUATION[0]}]| {{1,2}}(?! )")
# Patterns for the names, the strings and the other values in indented JSON.
_JSON_COLOURS = (
    (r'(?m)^ {4,}"(?:[^"\\\n]|\\.)*"(?=: )', "cyan"),
    (r'(?m)(?<=": )"(?:[^"\\\n]|\\.)*"(?=,?$)', "green"),
    (r'(?m)(?<=": )(?:true|false|null|-?[0-9][0-9.eE+-]*)(?=,?$)', "magenta"),
)
_ADDRESS = re.compile(r" *https?://[!-~]+")  # on a line of its own: it stays whole, so that it can be opened
_WORD = re.compile(r"\S+\s*|\s+")
_DIM, _RESET, _ERASE_LINE = "\x1b[2m", "\x1b[0m", "\r\x1b[K"
_MAX_DIFF_LINES = 40
_MAX_KIND_LENGTH = 80


@dataclass(slots=True)
class _Row:
    """The last row of the message that is being printed. The next piece of the message continues it."""

    text: str = ""
    style: str = ""
    is_deferred: bool = False
    """True if the row is not on the screen: it is printed when it is complete."""


class EventPrinter:
    """Prints text and events. Control characters in text from servers and models are replaced."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Without a stream, print to standard output."""
        self._stream = stream or sys.stdout
        self.is_terminal = self._stream.isatty()
        self._console: Any = None
        self._at_line_start = True
        self._is_closed = False
        self._open_calls: dict[str, ToolCalled] = {}
        self.started_calls: set[str] = set()
        """The ids of the calls that were permitted and have not ended."""
        self._cursor_column = 0
        self.prints_whole_rows = False
        """Whether each row of a message is printed only when it is complete. The chat sets this while a prompt is open below."""
        self._row = _Row()
        self._last_character = ""
        self._status = ""
        self._was_thought = False
        if self.is_terminal:
            from rich.console import Console

            self._console = Console(file=stream, highlight=False, markup=False, emoji=False)

    def print(self, text: str = "", style: str = "", *, end: str = "\n") -> None:
        """Print one line. Tabs become spaces. Newlines and other control characters are replaced, because the text may be from a server."""
        self._write(_printable(text) + end, style)

    def print_lines(self, text: str, style: str = "", *, end: str = "\n") -> None:
        """Print a text of several lines. Tabs become spaces, and other control characters are replaced."""
        first, *rest = text.split("\n")
        before = "" if self._at_line_start else self._last_character
        self._write("\n".join([_printable(first, before), *map(_printable, rest)]) + end, style)

    def _print_message(self, text: str, style: str = "") -> None:
        """Print a part of a message. A bar marks each line that looks like one of the chat itself: a server may have written it to deceive."""
        row, self._row = self._row, _Row()
        if row.is_deferred:
            text = row.text + text
        first, *rest = text.split("\n")
        first = _mark_imitation(first) if self._at_line_start else first
        lines = [first, *map(_mark_imitation, rest)]
        if self.is_terminal:
            width = shutil.get_terminal_size().columns
            lines = [*_wrap_words(lines, width, self._cursor_column)]
        if self.prints_whole_rows:
            last = lines.pop()
            if lines:
                self.print_lines("\n".join(lines), style)
            self._row = _Row(last, style, is_deferred=True)
        else:
            begins_row = len(lines) > 1 or self._at_line_start
            self.print_lines("\n".join(lines), style, end="")
            self._row = _Row(lines[-1] if begins_row else row.text + lines[-1], style)

    def prepare_prompt(self) -> None:
        """Begin a new line for a prompt. An incomplete row of a message is erased, and printed again when it is complete."""
        row = self._row
        if self._at_line_start:
            return
        if (
            self.is_terminal
            and 0 < cell_width(row.text) == self._cursor_column < shutil.get_terminal_size().columns
        ):
            self._write_raw(_ERASE_LINE)
            self._at_line_start, self._cursor_column = True, 0
            row.is_deferred = True
        else:
            self.new_line()

    def _print_deferred_row(self) -> None:
        row, self._row = self._row, _Row()
        if row.is_deferred and row.text:
            self.print_lines(row.text, row.style)

    def _write(self, shown: str, style: str) -> None:
        if self._is_closed or not shown:
            return
        self._print_deferred_row()
        self.clear_status()
        if self.is_terminal:
            shown = _wrap_rows(shown, shutil.get_terminal_size().columns, self._cursor_column)
        self._at_line_start = shown.endswith("\n")
        self._last_character = shown[-1]
        last = shown.rpartition("\n")[2]
        self._cursor_column = cell_width(last) + (0 if "\n" in shown else self._cursor_column)
        try:
            if self._console is None:
                self._stream.write(shown)
                self._stream.flush()
            else:
                from rich.text import Text

                text = Text(shown, style=style)
                if not style:
                    for pattern, colour in _JSON_COLOURS:
                        text.highlight_regex(pattern, colour)
                self._console.print(text, end="", soft_wrap=True)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            # The reader or the terminal is gone. Continue without output.
            self._is_closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def finish(self) -> None:
        """Flush the stream. If the terminal or the reader is gone, drop the rest: Python's own flush would fail and change the exit code."""
        self._print_deferred_row()
        try:
            self._stream.flush()
        except OSError:
            self._is_closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def show_status(self, text: str) -> None:
        """Show a status line until other text is printed. Without a terminal, or in the middle of a line, this does nothing."""
        if not self.is_terminal or self._is_closed or not self._at_line_start:
            return
        shown = shorten(_printable(text), max(shutil.get_terminal_size().columns - 1, 1))
        if shown != self._status:
            self.clear_status()
            self._status = shown
            self._write_raw(f"{_DIM}{shown}{_RESET}")

    @property
    def is_closed(self) -> bool:
        """Whether the terminal or the reader of the output is gone."""
        return self._is_closed

    def clear_status(self) -> None:
        """Remove the status line."""
        if self._status:
            self._status = ""
            self._write_raw(_ERASE_LINE)

    @property
    def open_calls(self) -> Mapping[str, ToolCalled]:
        """The calls that have not ended, by their ids. Some may still wait for permission."""
        return self._open_calls

    def _write_raw(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise

    def new_line(self) -> None:
        """End the current line, unless it is empty."""
        self._print_deferred_row()
        if not self._at_line_start:
            self.print()

    def _separate(self, *, is_thought: bool) -> None:
        """Begin a new line where a thought follows an answer, or an answer a thought."""
        if is_thought is not self._was_thought:
            self.new_line()
        self._was_thought = is_thought

    def _show_prompt(self, event: Prompted | MessageReceived) -> None:
        """Print a prompt of the user, or a message from another session."""
        self.new_line()
        if isinstance(event, MessageReceived):
            self.print_lines(received_text(event), "dim italic")
        else:
            text = "\n".join(map(_block_text, event.blocks))
            self.print_lines(PROMPT + text.replace("\n", f"\n{PROMPT_CONTINUATION}"), "bold")

    def show_stored(self, stored: StoredEvent) -> None:
        """Print a stored event.

        Of a sub-agent's events, only the calls are printed: its answer is also the result of the call that started it.
        """
        if isinstance(stored.event, ToolStarted):
            self.started_calls.add(stored.event.call_id)
        if not stored.agent:
            self.show(stored.event)
        elif isinstance(stored.event, ToolCalled):
            self.new_line()
            self.print(f"  {stored.agent}: {tool_name(stored.event)}", "dim")

    def show(self, event: Event) -> None:
        """Print an event."""
        match event:
            case Replied(text=text):
                self._separate(is_thought=False)
                self._print_message(text)
            case Thought(text=text):
                self._separate(is_thought=True)
                self._print_message(text, "dim italic")
            case Prompted() | MessageReceived():
                self._show_prompt(event)
            case Planned():
                self.new_line()
                self.print_lines("\n".join(map(_plan_line, plan_entries(event))), "dim")
            case ToolCalled():
                self._show_call(event)
            case ToolEnded():
                self._show_result(event)
            case PermissionDecided(decision=Decision.REJECT, call_id=call_id):
                self.new_line()
                self.print(f"  {self._call_name(call_id)}rejected", "yellow")
            case TurnEnded(reason=reason):
                self.new_line()
                if text := stop_text(reason):
                    self.print(text, "yellow")
            case ModeChanged() | TrustLowered() | UnknownEvent():
                self.new_line()
                self.print(f"  {_describe_change(event)}", "yellow")
            case (
                SessionOpened()
                | SessionClosed()
                | ServersResolved()
                | Titled()
                | ToolStarted()
                | PermissionDecided()
                | ModelResponded()
                | HistoryCompacted()
                | MessageSent()
            ):
                pass
            case _:
                assert_never(event)

    def _show_call(self, event: ToolCalled) -> None:
        self._open_calls[event.call_id] = event
        self.new_line()
        title = f"● {tool_name(event)} "
        self.print(title, "cyan", end="")
        # Print the arguments on one row of the terminal: a second row could look like another line of the chat.
        left = shutil.get_terminal_size().columns - len(title) if self.is_terminal else SUMMARY_CELLS
        self.print(summarize_arguments(event.arguments, min(max(left, 1), SUMMARY_CELLS)), "dim")

    def _show_result(self, event: ToolEnded) -> None:
        self.new_line()
        name = self._call_name(event.call_id)
        called = self._open_calls.pop(event.call_id, None)
        self.started_calls.discard(event.call_id)
        match event.outcome:
            case Outcome.COMPLETED:
                self.print(f"  {name}✓", "green")
                for line in _first_diff_lines(file_change(called, event)):
                    self.print(f"    {line}", {"+": "green", "-": "red"}.get(line[:1], "dim"))
            case Outcome.CANCELLED if event.code == INTERRUPTED:
                self.print(f"  {name}{INTERRUPTED}: {describe_interrupted(event)}", "yellow")
            case Outcome.CANCELLED:
                self.print(f"  {name}cancelled", "yellow")
            case Outcome.FAILED | Outcome.REFUSED:
                self.print(f"  {name}✗ {failure_code(event)}".rstrip(), "red")

    def _call_name(self, call_id: str) -> str:
        """The name of this call's tool and a space, if several calls are open; else an empty text."""
        called = self._open_calls.get(call_id)
        if called is None or len(self._open_calls) == 1:
            return ""
        return f"{tool_name(called)} "


def _describe_change(event: ModeChanged | TrustLowered | UnknownEvent) -> str:
    match event:
        case ModeChanged(mode=mode):
            return f"mode is now {mode}"
        case TrustLowered(trust_level=trust):
            return f"trust is now {trust}"
        case UnknownEvent(kind=kind):
            return f"unknown event {kind[:_MAX_KIND_LENGTH]!r}, stored by a newer version of Holdfast"


def _wrap_rows(text: str, width: int, column: int) -> str:
    """Break rows that are too long. Broken by the terminal, a row of a server's text could look like a line of the chat."""
    rows: list[str] = []
    for line in text.split("\n"):
        rows += [line] if _ADDRESS.fullmatch(line) else wrap(line, width, column)
        column = 0
    return "\n".join(rows)


def _wrap_words(lines: Sequence[str], width: int, column: int) -> Iterator[str]:
    """Break lines between words. The first line begins at `column`. Indented lines, such as JSON, and long words are not changed.

    A row that looks like a line of the chat itself gets a bar.
    """
    for line in lines:
        row, cells = "", column
        column = 0
        if line.startswith("    "):
            yield line
            continue
        for word in _WORD.findall(line):
            needed = cell_width(word.rstrip())
            if cells and cells + needed > width and needed <= width:
                yield row.rstrip()
                row = _mark_imitation(word)
                cells = cell_width(row)
            else:
                row += word
                cells += cell_width(word)
            if cells > width:  # spaces after the last word of the row would begin a row of their own
                row = row[: max(len(row.rstrip(" ")), len(row) - cells + width)]
        yield row


def _mark_imitation(line: str) -> str:
    """Put a bar in front of a line that looks like a line of the chat itself."""
    return f"│ {line}" if _CHAT_LINE.match(line) else line


def _printable(line: str, before: str = "") -> str:
    return printable(line.replace("\t", "    "), before)


def _block_text(block: JsonObject) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)} | {"type": "resource", "resource": {"uri": str(uri)}}:
            return f"[{uri}]"
        case _:
            return f"[{block.get('type')}]"


def _plan_line(entry: PlanEntry) -> str:
    mark = "x" if entry.status == "completed" else " "
    return f"  [{mark}] {printable(entry.content)}"


def _first_diff_lines(change: FileChange | None) -> Iterator[str]:
    lines = [*diff_lines(change)] if change is not None else []
    yield from lines[:_MAX_DIFF_LINES]
    if len(lines) > _MAX_DIFF_LINES:
        yield f"… and {len(lines) - _MAX_DIFF_LINES} more lines"
