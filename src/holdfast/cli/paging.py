"""Collects results page by page, for the options `--limit` and `--all`, and counts the results that are not shown."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

import click

from holdfast.cli.output import print_line
from holdfast.store.query import MAX_PAGE_SIZE
from holdfast.store.types import Page

T = TypeVar("T")

_COUNT_LIMIT = 10 * MAX_PAGE_SIZE  # to count results, their pages have to be read

FetchPage = Callable[[str | None], Awaitable[Page[T]]]
"""Fetches the page after a cursor. All pages must have the same size, because a cursor is valid for one size only."""


def limit_options(default: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options `--limit` and `--all`. The command gets them as one parameter, `limit`; None means all."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_limit(*args: Any, limit: int, every: bool, **kwargs: Any) -> None:
            command(*args, limit=None if every else limit, **kwargs)

        with_limit = click.option("--all", "every", is_flag=True, help="Show all, without a limit.")(
            with_limit
        )
        return click.option(
            "--limit",
            type=click.IntRange(1),
            metavar="N",
            default=default,
            show_default=True,
            help="Show at most the latest N.",
        )(with_limit)

    return decorate


async def collect_pages(fetch: FetchPage[T], limit: int | None) -> tuple[list[T], int]:
    """The first `limit` results (None: all), and the number of the others, which are counted up to about 10,000."""
    found: list[T] = []
    count = 0
    cursor: str | None = None
    while True:
        page = await fetch(cursor)
        count += len(page.items)
        found += page.items if limit is None else page.items[: limit - len(found)]
        cursor = page.cursor
        if cursor is None or count - len(found) >= _COUNT_LIMIT:
            return found, count - len(found)


def print_remaining(shown: int, more: int) -> None:
    """Print to standard error how many more results there are, and how to see them."""
    if more:
        count = f"at least {more}" if more >= _COUNT_LIMIT else str(more)
        print_line(
            f"Showing the latest {shown}; {count} more. To see more, add --limit {shown * 2} or --all.",
            err=True,
        )
