"""Which sessions there are, and where something was said."""

import json
from dataclasses import replace
from pathlib import Path

import click

from holdfast.cli import table
from holdfast.cli.pages import gathered, limit_options, say_beyond
from holdfast.cli.place import path_option
from holdfast.cli.reading import with_reading
from holdfast.cli.sessions.open_turn import open_turn
from holdfast.cli.sessions.work import SHORT, ago, for_programs
from holdfast.store.query import MOST, OPERATOR, SearchQuery, SessionQuery
from holdfast.store.rows import Hit, StoredSession
from holdfast.store.store import Store


@click.command("list")
@click.option("--here", is_flag=True, help="Only sessions of this folder.")
@click.option("--cwd", type=click.Path(path_type=Path, file_okay=False), help="Only sessions of that folder.")
@click.option("--source", help="Only those that came from there: acp, chat, cli, python.")
@limit_options(50)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, for programs.")
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
    """List the sessions, the latest first."""
    folder = Path() if here else cwd
    where = None if folder is None else str(folder.resolve())
    query = SessionQuery(reach=OPERATOR, cwd=where, source=source, limit=MOST)

    async def work(store: Store) -> tuple[list[StoredSession], int]:
        return await gathered(lambda cursor: store.sessions(replace(query, cursor=cursor)), limit)

    found, beyond = with_reading(path, work)
    if as_json:
        for stored in found:
            click.echo(json.dumps(for_programs(stored)))
    elif found:
        columns = ("session", "last used", "title", "folder", "from")
        table.show(columns, [_row(stored) for stored in found])
    else:
        click.echo("There are no such sessions. Start one: holdfast chat", err=True)
    say_beyond(len(found), beyond)


@click.command()
@click.argument("words", nargs=-1, required=True)
@limit_options(20)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, for programs.")
@path_option
def search(*, words: tuple[str, ...], limit: int | None, as_json: bool, path: Path | None) -> None:
    """Find messages and titles that have all the words."""
    query = SearchQuery(reach=OPERATOR, words=" ".join(words), limit=MOST)

    async def work(store: Store) -> tuple[list[Hit], int]:
        return await gathered(lambda cursor: store.search(replace(query, cursor=cursor)), limit)

    hits, beyond = with_reading(path, work)
    if as_json:
        for hit in hits:
            told = {"session": for_programs(hit.session), "seq": hit.seq, "snippet": hit.snippet}
            click.echo(json.dumps(told))
    elif hits:
        table.show(("session", "last used", "title", "where"), [_hit(hit) for hit in hits])
    else:
        click.echo(f"Nothing has all of: {' '.join(words)}. Whole words are looked for.", err=True)
    say_beyond(len(hits), beyond)


def _row(stored: StoredSession) -> tuple[str, ...]:
    context = stored.context
    title = stored.title or "(nothing was said)"
    if unended := open_turn(stored):
        title += f" (its last turn {unended})"
    return context.session_id[:SHORT], ago(stored.updated), title, context.cwd, stored.source


def _hit(hit: Hit) -> tuple[str, ...]:
    session = hit.session
    return session.context.session_id[:SHORT], ago(session.updated), session.title, _line(hit.snippet)


def _line(text: str) -> str:
    return " ".join(text.split())
