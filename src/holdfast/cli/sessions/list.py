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
from holdfast.cli.sessions.describe import SessionSummary, summarize, time_ago, with_titles
from holdfast.store.query import MAX_PAGE_SIZE, SearchQuery, SessionQuery, Visibility
from holdfast.store.search import contains_words, parse_words
from holdfast.store.store import Store
from holdfast.store.types import SearchHit
from holdfast.workspaces import WORKSPACES_FOLDER, Registry

_MAX_SEARCHED = 10_000
"""How many hits, and how many sessions, a search reads."""
_MAX_HITS_PER_SESSION = 3
_Match = tuple[SessionSummary, list[SearchHit]]
"""A session that was found, and the messages and titles in it that contain the words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filters:
    """The values of `--source`, `--tag`, `--workspace` and `--user`."""

    source: str | None
    tags: tuple[str, ...]
    visibility: Visibility

    @property
    def is_empty(self) -> bool:
        """Whether none of the options was given."""
        return self.source is None and not self.tags and self.visibility == Visibility()


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
        click.option("--source", help="Only sessions from this source: acp, chat, cli, gateway or python."),
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

    async def work(store: Store) -> tuple[list[SessionSummary], int]:
        found, more = await collect_pages(lambda cursor: store.sessions(replace(query, cursor=cursor)), limit)
        return [await summarize(store, stored) for stored in found], more

    found, more = run_with_read_only_store(path, work)
    if as_json:
        for summary in found:
            print_json(summary.to_json())
    elif found:
        columns = ("session", "last used", "state", "title", "folder", "from")
        rows = [_row(summary) for summary in found]
        users = [summary.stored.context.user_id or "" for summary in found]
        if len({*users}) > 1:
            columns, rows = (*columns, "user"), [(*row, user) for row, user in zip(rows, users, strict=True)]
        print_table(columns, rows)
    else:
        print_line("No sessions found. To start one: holdfast chat", err=True)
    print_remaining(len(found), more)


@click.command()
@click.argument("words", nargs=-1)
@_filter_options
@limit_options(20)
@json_lines_option
@path_option
def search(
    *, words: tuple[str, ...], filters: _Filters, limit: int | None, as_json: bool, path: Path | None
) -> None:
    """Find sessions with a message or a title that contains all the words.

    Each session is printed once, with its latest matches. Without words, all sessions that the options select are printed.

    \b
    Examples:
      holdfast sessions search login bug
      holdfast sessions search login --source chat --tag release
      holdfast sessions search --tag release
    """
    if not words and filters.is_empty:
        raise click.UsageError(
            "Give a word to search for, or one of --source, --tag, --workspace and --user."
        )
    sessions = SessionQuery(
        visibility=filters.visibility, source=filters.source, tags=filters.tags, limit=MAX_PAGE_SIZE
    )
    query = SearchQuery(
        visibility=filters.visibility,
        words=" ".join(words),
        source=filters.source,
        tags=filters.tags,
        limit=MAX_PAGE_SIZE,
    )

    async def work(store: Store) -> tuple[list[_Match], int]:
        if not words:
            selected, more = await collect_pages(
                lambda cursor: store.sessions(replace(sessions, cursor=cursor)), limit
            )
            return [(await summarize(store, stored), []) for stored in selected], more
        hits, _ = await collect_pages(
            lambda cursor: store.search(replace(query, cursor=cursor)), _MAX_SEARCHED
        )
        by_session: dict[str, list[SearchHit]] = {}
        for hit in (*hits, *await _find_by_first_call(store, sessions, query.words)):
            by_session.setdefault(hit.session.context.session_id, []).append(hit)
        found = sorted(by_session.values(), key=lambda hits: hits[0].session.updated, reverse=True)
        shown = found if limit is None else found[:limit]
        return [(await summarize(store, hits[0].session), hits) for hits in shown], len(found) - len(shown)

    shown, more = run_with_read_only_store(path, work)
    if as_json:
        for summary, hits in shown:
            hit_lines = [{"seq": hit.seq, "snippet": hit.snippet} for hit in hits]
            print_json({"session": summary.to_json(), "hits": hit_lines})
    elif shown:
        rows = [row for match in shown for row in _hit_rows(*match)]
        print_table(("session", "last used", "title", "text"), rows)
    else:
        print_line(
            f"No message or title contains all of: {' '.join(words)}. The search matches whole words."
            if words
            else "No session matches these options.",
            err=True,
        )
    print_remaining(len(shown), more)


async def _find_by_first_call(store: Store, sessions: SessionQuery, words: str) -> list[SearchHit]:
    """Find sessions without a stored title by the title that they are listed with: their first call."""
    searched_words = parse_words(words)
    found, _ = await collect_pages(
        lambda cursor: store.sessions(replace(sessions, cursor=cursor)), _MAX_SEARCHED
    )
    titled = await with_titles(store, [stored for stored in found if not stored.title])
    return [
        SearchHit(session=stored, message_id="", seq=0, snippet=stored.title)
        for stored in titled
        if contains_words(stored.title, searched_words)
    ]


def _row(summary: SessionSummary) -> tuple[str, ...]:
    stored, context = summary.stored, summary.stored.context
    title = stored.title or "(no title)"
    return (
        short_id(context.session_id),
        time_ago(stored.updated),
        summary.short_state,
        title,
        context.cwd,
        stored.source,
    )


def _hit_rows(summary: SessionSummary, hits: list[SearchHit]) -> Iterator[tuple[str, ...]]:
    """The rows of a session: its latest matches, and how many more there are."""
    session = summary.stored
    first = (short_id(session.context.session_id), time_ago(session.updated), session.title)
    # Without repetitions, because a title repeats the first prompt. A session that was found without words has no hits.
    texts = [*dict.fromkeys(" ".join(hit.snippet.split()) for hit in hits)] or [""]
    for number, text in enumerate(texts[:_MAX_HITS_PER_SESSION]):
        yield (*(("", "", "") if number else first), text)
    if len(texts) > _MAX_HITS_PER_SESSION:
        yield "", "", "", f"… and {len(texts) - _MAX_HITS_PER_SESSION} more"
