"""Answers that come page by page: as many as were asked for, and how many more there are."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

import click

from holdfast.store.query import MOST
from holdfast.store.rows import Page

T = TypeVar("T")

_COUNTED = 10 * MOST  # to count more would keep the person waiting

Fetch = Callable[[str | None], Awaitable[Page[T]]]
"""The page from this cursor on, as large as pages get: a cursor is good for pages of one size."""


def limit_options(default: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options `--limit` and `--all`, which reach the command as `limit`; None is all."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_limit(*args: Any, limit: int, every: bool, **kwargs: Any) -> None:
            command(*args, limit=None if every else limit, **kwargs)

        with_limit = click.option("--all", "every", is_flag=True, help="All of them.")(with_limit)
        return click.option(
            "--limit",
            type=click.IntRange(1),
            metavar="N",
            default=default,
            show_default=True,
            help="How many, the latest.",
        )(with_limit)

    return decorated


async def gathered(fetch: Fetch[T], limit: int | None) -> tuple[list[T], int]:
    """As many answers as this, or all; and how many there are beyond, counted up to ten thousand."""
    found: list[T] = []
    count = 0
    cursor: str | None = None
    while True:
        page = await fetch(cursor)
        count += len(page.items)
        found += page.items if limit is None else page.items[: limit - len(found)]
        cursor = page.cursor
        if cursor is None or count - len(found) >= _COUNTED:
            return found, count - len(found)


def say_beyond(shown: int, beyond: int) -> None:
    """Tell a person that there is more, and how to see it; standard output stays for the answers."""
    if beyond:
        more = f"at least {beyond}" if beyond >= _COUNTED else str(beyond)
        click.echo(f"The latest {shown}; {more} more. To see them: --limit {shown * 2}, or --all", err=True)
