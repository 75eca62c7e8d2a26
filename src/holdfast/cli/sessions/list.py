"""`holdfast sessions list` and `search`."""

from dataclasses import replace
from pathlib import Path

import click

from holdfast.cli.find_session import short_id
from holdfast.cli.open_store import run_with_read_only_store
from holdfast.cli.options import json_lines_option, path_option
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.cli.paging import collect_pages, limit_options, print_remaining
from holdfast.cli.sessions.describe import describe_open_turn, session_to_json, time_ago
from holdfast.store.query import ALL_SESSIONS, MAX_PAGE_SIZE, SearchQuery, SessionQuery
from holdfast.store.store import Store
from holdfast.store.types import SearchHit, StoredSession


@click.command("list")
@click.option("--here", is_flag=True, help="Only sessions of the current folder.")
@click.option("--cwd", type=click.Path(path_type=Path, file_okay=False), help="Only sessions of this folder.")
@click.option("--source", help="Only sessions opened by this source: acp, chat, cli or python.")
@limit_options(50)
@json_lines_option
@path_option
def list_sessions(
    *,
    here: bool,
    cwd: Path | None,
    source: str | None,
    limit: int | None,
    as_json: bool,
    path: Path | None,
) -> None:
    """List the sessions, latest first.

    \b
    Examples:
      holdfast sessions list --here
      holdfast sessions list --source chat --limit 5
    """
    folder = Path() if here else cwd
    where = None if folder is None else str(folder.resolve())
    query = SessionQuery(visibility=ALL_SESSIONS, cwd=where, source=source, limit=MAX_PAGE_SIZE)

    async def work(store: Store) -> tuple[list[StoredSession], int]:
        return await collect_pages(lambda cursor: store.sessions(replace(query, cursor=cursor)), limit)

    found, more = run_with_read_only_store(path, work)
    if as_json:
        for stored in found:
            print_json(session_to_json(stored), indent=None)
    elif found:
        columns = ("session", "last used", "title", "folder", "from")
        print_table(columns, [_row(stored) for stored in found])
    else:
        print_line("No sessions found. To start one: holdfast chat", err=True)
    print_remaining(len(found), more)


@click.command()
@click.argument("words", nargs=-1, required=True)
@limit_options(20)
@json_lines_option
@path_option
def search(*, words: tuple[str, ...], limit: int | None, as_json: bool, path: Path | None) -> None:
    """Find messages and titles that contain all the words.

    \b
    Example:
      holdfast sessions search login bug
    """
    query = SearchQuery(visibility=ALL_SESSIONS, words=" ".join(words), limit=MAX_PAGE_SIZE)

    async def work(store: Store) -> tuple[list[SearchHit], int]:
        return await collect_pages(lambda cursor: store.search(replace(query, cursor=cursor)), limit)

    hits, more = run_with_read_only_store(path, work)
    if as_json:
        for hit in hits:
            line = {"session": session_to_json(hit.session), "seq": hit.seq, "snippet": hit.snippet}
            print_json(line, indent=None)
    elif hits:
        print_table(("session", "last used", "title", "text"), [_hit_row(hit) for hit in hits])
    else:
        print_line(
            f"No message or title contains all of: {' '.join(words)}. The search matches whole words.",
            err=True,
        )
    print_remaining(len(hits), more)


def _row(stored: StoredSession) -> tuple[str, ...]:
    context = stored.context
    title = stored.title or "(no prompts)"
    if open_turn := describe_open_turn(stored):
        title += f" (its last turn {open_turn})"
    return short_id(context.session_id), time_ago(stored.updated), title, context.cwd, stored.source


def _hit_row(hit: SearchHit) -> tuple[str, ...]:
    session = hit.session
    return (
        short_id(session.context.session_id),
        time_ago(session.updated),
        session.title,
        " ".join(hit.snippet.split()),
    )
