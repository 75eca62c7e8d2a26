"""Rows on the terminal: a table for a person, plain columns for a pipe."""

import json
import sys
from collections.abc import Sequence

import click

_NAME = 32


def show(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their column names; piped output is never cut or folded."""
    rows = [[plain(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _for_a_person(columns, rows)
    else:
        _for_a_pipe(columns, rows)


def plain(text: str) -> str:
    """The text without what would steer a terminal: others' names and words are shown, never obeyed."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "�" for letter in text)


def spelled(text: str) -> str:
    """The text with everything that could move the cursor or hide a letter spelled out."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def lines(text: str) -> str:
    """Several lines, each without what would steer a terminal, those after the first behind a bar."""
    first, *rest = text.splitlines() or [""]
    return "\n  | ".join([plain(first), *map(plain, rest)])


def _for_a_person(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD)
    # What a row is called is read whole where that can be; the rest is folded first.
    table.columns[0].min_width = min(_NAME, max(len(row[0]) for row in (columns, *rows)))
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    Console().print(table)


def _for_a_pipe(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())
