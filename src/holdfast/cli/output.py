"""Prints lines, tables, JSON and errors, and asks questions. `event_printer` prints the events of a conversation.

Commands print text from servers, models and files only with these functions, which replace control and invisible
characters.
"""

import asyncio
import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.terminal_text import (
    escape_unprintable,
    printable,
    replace_unprintable,
    shorten,
    wrap,
    wrap_question,
)
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

STDOUT = Path("-")
AGENT_SERVERS_NOTE = (
    "Sessions of editors and chats also have the built-in servers agents, plan and shell, stage if Chromium or Chrome is installed,"
    " and team in a workspace. To list the tools of one: holdfast tools SERVER"
)
NO_SERVERS = "No servers are configured yet. To import some: holdfast servers import --from claude-desktop"
_MAX_NAME_CELLS = 32  # longer names are wrapped
_QUESTION_ROWS = 4  # the rows that a question below the lines needs
_MAX_REPEATS = 3  # how often a review shows the same line
_FIRST_INTERVAL_SECONDS = 5.0
T = TypeVar("T")


def print_line(text: str = "", *, err: bool = False) -> None:
    """Print one line. Control characters, including line breaks, are replaced."""
    click.echo(printable(text), err=err)


async def print_while_waiting(what: str, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` and return its result. Until then, print `what` and the time so far: after 5 seconds, and then less and less often."""
    started, interval = time.monotonic(), _FIRST_INTERVAL_SECONDS
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait([task], timeout=interval))[0]:
            interval *= 2
            print_line(f"  {what}, {time.monotonic() - started:.0f} s")
    finally:
        task.cancel()
        await asyncio.wait([task])
    return task.result()


def print_wrapped(line: str) -> None:
    """Print one line of untrusted text. On a terminal, a long line is wrapped, and each further row begins with a mark."""
    for row in _rows(line):
        click.echo(row)


def print_for_review(lines: Iterable[str]) -> bool:
    """Print each line as `print_wrapped` does. On a terminal, the same line many times in a row is printed once, with its number.

    If the user has to scroll to see all of them above a question, a last line says so, and how long they are. Returns False then.
    """
    if not sys.stdout.isatty():
        for line in lines:
            print_wrapped(line)
        return True
    rows, first = 0, ""
    for line, same in groupby(lines):
        repeats = sum(1 for _ in same)
        printed = (
            [line] * repeats
            if repeats <= _MAX_REPEATS
            else [line, f"… {repeats - 1:,} more lines like the one above"]
        )
        for row in (row for shown in printed for row in _rows(shown)):
            click.echo(row)
            rows += 1
            first = first or row
    if rows <= shutil.get_terminal_size().lines - _QUESTION_ROWS:
        return True
    print_wrapped(
        f"This has {rows:,} rows, more than the screen. Scroll up and read all of it, from its first row: {shorten(first, _MAX_NAME_CELLS)}"
    )
    return False


def _rows(line: str) -> Iterable[str]:
    shown = replace_unprintable(line)
    return wrap(shown, shutil.get_terminal_size().columns) if sys.stdout.isatty() else (shown,)


def print_lines(text: str, *, err: bool = False) -> None:
    """Print a text. Its line breaks are kept; other control characters are replaced, and tabs become spaces."""
    for line in text.split("\n"):
        print_line(line.replace("\t", "    "), err=err)


def print_output(text: str, *, err: bool = False) -> None:
    """Print the text that a tool returned: unchanged to a pipe or file, with control characters replaced to a terminal."""
    if (sys.stderr if err else sys.stdout).isatty():
        print_lines(text, err=err)
    else:
        click.echo(text, err=err, color=True)  # without `color`, click removes escape sequences


def print_json(value: Any) -> None:
    """Print JSON for programs: on one line, in ASCII."""
    click.echo(json.dumps(value))


def print_indented_json(value: Any) -> None:
    """Print JSON for people, in ASCII."""
    click.echo(json.dumps(value, indent=2))


def confirm(question: str) -> bool:
    """Ask a yes-or-no question. Input that was typed before the question is discarded."""
    discard_typed_input(sys.stdin.fileno() if sys.stdin.isatty() else None)
    return click.confirm(_wrapped_question(question))


def ask(question: str) -> str:
    """Ask a question and return the answer. Input that was typed before the question is discarded."""
    discard_typed_input(sys.stdin.fileno() if sys.stdin.isatty() else None)
    return str(click.prompt(_wrapped_question(question), default="", show_default=False, prompt_suffix=" "))


def _wrapped_question(question: str) -> str:
    shown = replace_unprintable(question)
    return wrap_question(shown) if sys.stdout.isatty() else shown


def discard_typed_input(descriptor: int | None) -> None:
    """Discard input that was typed at this terminal and not read yet. None, or a closed terminal, is ignored."""
    import termios

    if descriptor is not None:
        with suppress(termios.error):  # the descriptor is not a terminal, or the terminal was closed
            termios.tcflush(descriptor, termios.TCIFLUSH)


def confirm_or_abort(question: str, *, action: str) -> None:
    """Ask a yes-or-no question. If the answer is no, end the command.

    Without a terminal, raise. `action` completes the message "Add --yes to … without confirmation".
    """
    try:
        agreed = confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise click.UsageError(
            f"Cannot ask for confirmation without a terminal. Add --yes to {action} without confirmation."
        ) from None
    if not agreed:
        raise click.Abort


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. In a pipe, it has plain columns that are never wrapped or truncated."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, rows)
    else:
        _print_plain(columns, rows)


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD)
    # The first column contains names, which should not be wrapped: rich then wraps the other columns first.
    table.columns[0].min_width = min(_MAX_NAME_CELLS, max(len(row[0]) for row in (columns, *rows)))
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    Console().print(table)


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


def print_error(error: HoldfastError) -> None:
    """Print an error and its hint to standard error. Further lines of the message are indented, so that none looks like a hint."""
    first, *rest = error.message.split("\n")
    print_line(f"Error: {first}", err=True)
    for line in rest:
        print_line(f"  {line.removeprefix('  ')}", err=True)
    # The general hint of BAD_ARGUMENT is for callers of tools.
    is_general = error.code is codes.BAD_ARGUMENT and error.hint == error.code.hint
    print_line(f"Hint: {'Correct it, and try again.' if is_general else error.hint}", err=True)


def write_json_lines(output: Path | None, lines: Iterable[str]) -> None:
    """Write lines of JSON to standard output or to a new file. If writing fails, the incomplete file is removed.

    Invisible characters are written as JSON escapes, which every JSON parser decodes to the same text.
    """
    lines = map(escape_unprintable, lines)
    if output is None or output == STDOUT:
        for line in lines:
            click.echo(line)
        return
    check_parent_folder(output)
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise HoldfastError(codes.FILE_EXISTS, f"'{output}' already exists. Nothing was changed.") from None
    except OSError as error:
        raise _write_error(output, error) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        output.unlink(missing_ok=True)
        raise _write_error(output, error) from None
    except BaseException:
        output.unlink(missing_ok=True)
        raise


def check_parent_folder(output: Path) -> None:
    """Raise if the folder of the output file does not exist."""
    folder = output.parent
    if folder.is_dir():
        return
    if folder.exists():
        what, hint = f"'{folder}' is a file, not a folder", "Choose another folder."
    else:
        what, hint = f"There is no folder '{folder}'", "Create the folder, or choose another one."
    raise HoldfastError(codes.FILE_ERROR, f"{what}: '{output}' cannot be written.", hint=hint)


def _write_error(output: Path, error: OSError) -> HoldfastError:
    reason = (error.strerror or type(error).__name__).lower()
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    fix = "Free some space, then try again." if full else "Choose another file."
    return HoldfastError(
        codes.FILE_ERROR,
        f"'{output}' cannot be written: {reason}. No incomplete file was left behind.",
        hint=fix,
    )
