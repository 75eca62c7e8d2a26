"""Which sessions there are, and where something was said."""

import json
from pathlib import Path

import click

from holdfast.cli import table
from holdfast.cli.place import path_option
from holdfast.cli.sessions.work import SHORT, ago, for_programs, with_store
from holdfast.store.query import MOST, OPERATOR, SearchQuery, SessionQuery
from holdfast.store.rows import StoredSession


@click.command("list")
@click.option("--here", is_flag=True, help="Only sessions of this folder.")
@click.option("--cwd", type=click.Path(path_type=Path, file_okay=False), help="Only sessions of that folder.")
@click.option("--source", help="Only those that came from there: acp, chat, cli, python.")
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=50, show_default=True, help="How many, the latest."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, for programs.")
@path_option
def list_sessions(
    *, here: bool, cwd: Path | None, source: str | None, limit: int, as_json: bool, path: Path | None
) -> None:
    """List the sessions, the latest first."""
    folder = Path() if here else cwd
    query = SessionQuery(
        reach=OPERATOR, cwd=None if folder is None else str(folder.resolve()), source=source, limit=limit
    )
    page = with_store(path, lambda store: store.sessions(query))
    if as_json:
        for stored in page.items:
            click.echo(json.dumps(for_programs(stored)))
        return
    if not page.items:
        click.echo("There are no such sessions. Start one: holdfast chat", err=True)
        return
    table.show(("session", "last used", "title", "folder", "from"), [_row(stored) for stored in page.items])
    if page.cursor is not None:
        click.echo(f"The latest {limit}. For more: --limit {limit * 2}", err=True)


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="How many, the latest."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, for programs.")
@path_option
def search(*, words: tuple[str, ...], limit: int, as_json: bool, path: Path | None) -> None:
    """Find messages and titles that have all the words."""
    query = SearchQuery(reach=OPERATOR, words=" ".join(words), limit=limit)
    page = with_store(path, lambda store: store.search(query))
    if as_json:
        for hit in page.items:
            told = {"session": for_programs(hit.session), "seq": hit.seq, "snippet": hit.snippet}
            click.echo(json.dumps(told))
        return
    if not page.items:
        click.echo(f"Nothing has all of: {' '.join(words)}. Whole words are looked for.", err=True)
        return
    rows = [
        (
            hit.session.context.session_id[:SHORT],
            ago(hit.session.updated),
            hit.session.title,
            _line(hit.snippet),
        )
        for hit in page.items
    ]
    table.show(("session", "last used", "title", "where"), rows)


def _row(stored: StoredSession) -> tuple[str, ...]:
    context = stored.context
    title = stored.title or "(nothing was said)"
    if stored.open_turn:
        title += " (a turn is open)"
    return context.session_id[:SHORT], ago(stored.updated), title, context.cwd, stored.source


def _line(text: str) -> str:
    return " ".join(text.split())
