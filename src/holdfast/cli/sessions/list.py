"""`holdfast sessions list` and `search`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from holdfast import settings
from holdfast.cli.find_session import short_id
from holdfast.cli.open_store import run_with_read_only_store
from holdfast.cli.options import json_lines_option, path_option
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.cli.paging import collect_pages, limit_options, print_remaining
from holdfast.cli.sessions.describe import describe_open_turn, session_to_json, time_ago, with_title
from holdfast.store.query import MAX_PAGE_SIZE, SearchQuery, SessionQuery, Visibility
from holdfast.store.store import Store
from holdfast.store.types import SearchHit, StoredSession
from holdfast.workspaces import WORKSPACES_FOLDER, Registry

_MAX_HITS = 10_000
_MAX_SHOWN_HITS = 3  # of each session


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filters:
    """The values of `--source`, `--tag`, `--workspace` and `--user`."""

    source: str | None
    tags: tuple[str, ...]
    visibility: Visibility


def _filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options `--source`, `--tag`, `--workspace` and `--user`. The command gets them as its parameter `filters`."""

    @wraps(command)
    def with_filters(
        *args: Any,
        source: str | None,
        tags: tuple[str, ...],
        workspace: str | None,
        user: str | None,
        **kwargs: Any,
    ) -> None:
        workspace_id = None if workspace is None else _workspace_id(workspace)
        visibility = Visibility(workspace_id=workspace_id, user_id=user)
        command(*args, filters=_Filters(source=source, tags=tags, visibility=visibility), **kwargs)

    for option in (
        click.option("--user", metavar="ID", help="Only sessions of this user."),
        click.option("--workspace", metavar="NAME", help="Only sessions of this workspace."),
        click.option("--tag", "tags", multiple=True, help="Only sessions with this tag. Can be repeated."),
        click.option(
            "--source", help="Only sessions opened by this source: acp, chat, cli, gateway or python."
        ),
    ):
        with_filters = option(with_filters)
    return with_filters


def _workspace_id(name: str) -> str:
    """The id of a workspace. A name that is not registered is returned unchanged, because stored sessions may still have this id."""
    found = Registry(settings.load().data_dir / WORKSPACES_FOLDER).find(name)
    return name if found is None else found.slug


@click.command("list")
@click.option("--here", is_flag=True, help="Only sessions of the current folder.")
@click.option("--cwd", type=click.Path(path_type=Path, file_okay=False), help="Only sessions of this folder.")
@_filter_options
@limit_options(50)
@json_lines_option
@path_option
def list_sessions(
    *, here: bool, cwd: Path | None, filters: _Filters, limit: int | None, as_json: bool, path: Path | None
) -> None:
    """List the sessions, latest first.

    \b
    Examples:
      holdfast sessions list --here
      holdfast sessions list --source chat --limit 5
      holdfast sessions list --tag release
    """
    folder = Path() if here else cwd
    where = None if folder is None else str(folder.resolve())
    query = SessionQuery(
        visibility=filters.visibility,
        cwd=where,
        source=filters.source,
        tags=filters.tags,
        limit=MAX_PAGE_SIZE,
    )

    async def work(store: Store) -> tuple[list[StoredSession], int]:
        found, more = await collect_pages(lambda cursor: store.sessions(replace(query, cursor=cursor)), limit)
        return [await with_title(store, stored) for stored in found], more

    found, more = run_with_read_only_store(path, work)
    if as_json:
        for stored in found:
            print_json(session_to_json(stored))
    elif found:
        columns = ("session", "last used", "title", "folder", "from")
        rows = [_row(stored) for stored in found]
        users = [stored.context.user_id or "" for stored in found]
        if len({*users}) > 1:
            columns, rows = (*columns, "user"), [(*row, user) for row, user in zip(rows, users, strict=True)]
        print_table(columns, rows)
    else:
        print_line("No sessions found. To start one: holdfast chat", err=True)
    print_remaining(len(found), more)


@click.command()
@click.argument("words", nargs=-1, required=True)
@_filter_options
@limit_options(20)
@json_lines_option
@path_option
def search(
    *, words: tuple[str, ...], filters: _Filters, limit: int | None, as_json: bool, path: Path | None
) -> None:
    """Find sessions with a message or a title that contains all the words.

    Each session is printed once, with its latest matches.

    \b
    Examples:
      holdfast sessions search login bug
      holdfast sessions search login --source chat --tag release
    """
    query = SearchQuery(
        visibility=filters.visibility,
        words=" ".join(words),
        source=filters.source,
        tags=filters.tags,
        limit=MAX_PAGE_SIZE,
    )

    async def work(store: Store) -> tuple[list[SearchHit], int]:
        return await collect_pages(lambda cursor: store.search(replace(query, cursor=cursor)), _MAX_HITS)

    hits, _ = run_with_read_only_store(path, work)
    by_session: dict[str, list[SearchHit]] = {}
    for hit in hits:
        by_session.setdefault(hit.session.context.session_id, []).append(hit)
    found = list(by_session.values())
    shown = found if limit is None else found[:limit]
    if as_json:
        for matches in shown:
            hit_lines = [{"seq": hit.seq, "snippet": hit.snippet} for hit in matches]
            print_json({"session": session_to_json(matches[0].session), "hits": hit_lines})
    elif shown:
        rows = [row for matches in shown for row in _hit_rows(matches)]
        print_table(("session", "last used", "title", "text"), rows)
    else:
        print_line(
            f"No message or title contains all of: {' '.join(words)}. The search matches whole words.",
            err=True,
        )
    print_remaining(len(shown), len(found) - len(shown))


def _row(stored: StoredSession) -> tuple[str, ...]:
    context = stored.context
    title = stored.title or "(no title)"
    if open_turn := describe_open_turn(stored):
        title += f" (its last turn {open_turn})"
    return short_id(context.session_id), time_ago(stored.updated), title, context.cwd, stored.source


def _hit_rows(hits: list[SearchHit]) -> Iterator[tuple[str, ...]]:
    """The rows of a session: its latest matches, and how many more there are."""
    session = hits[0].session
    first = (short_id(session.context.session_id), time_ago(session.updated), session.title)
    texts = [
        *dict.fromkeys(" ".join(hit.snippet.split()) for hit in hits)
    ]  # a title repeats the first prompt
    for number, text in enumerate(texts[:_MAX_SHOWN_HITS]):
        yield (*(("", "", "") if number else first), text)
    if len(texts) > _MAX_SHOWN_HITS:
        yield "", "", "", f"… and {len(texts) - _MAX_SHOWN_HITS} more"
