"""`holdfast audit`: what was done, and whether the record of it is whole."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import verify_store
from holdfast.audit.record import AuditKind, AuditRecord, read_record
from holdfast.cli import table
from holdfast.cli.place import database, exit_code, path_option
from holdfast.model.ids import parse_session_id
from holdfast.store.rows import AuditRow
from holdfast.store.sqlreads import SqlReads
from holdfast.store.upkeep import reading

COLUMNS = ("seq", "when", "session", "kind", "what", "outcome", "ms", "reason")


@click.group()
def audit() -> None:
    """Show, check and export the record of what was done.

    Every tool call, refusal, permission decision and denied attempt leaves one record. Each record is
    chained to the one before by its hash, so that none can be changed or removed unseen.
    """


@audit.command("list")
@click.option("--session", metavar="ID", help="Only this session's records.")
@click.option(
    "--kind", type=click.Choice([kind.value for kind in AuditKind]), help="Only records of this kind."
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many, the latest.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, for programs.")
@path_option
def show(*, session: str | None, kind: str | None, limit: int, as_json: bool, path: Path | None) -> None:
    """Print the latest records, the oldest of them first."""
    from collections import deque

    wanted = None if session is None else parse_session_id(session)
    with exit_code(), reading(database(path)) as db:
        rows = SqlReads(db).audit_rows(session_id=wanted)
        latest = deque((row for row in rows if kind in (None, read_record(row.body).kind)), maxlen=limit)
    if as_json:
        for row in latest:
            click.echo(_line(row))
    else:
        table.show(COLUMNS, [_cells(row.seq, read_record(row.body)) for row in latest])


@audit.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@path_option
def verify(*, as_json: bool, path: Path | None) -> None:
    """Check that no record was changed, moved, removed or cut off.

    Exits with 0 when all is well, 1 when it is not, 2 when called wrongly, 3 when the store cannot be read.
    """
    file = database(path)
    with exit_code():
        anchor = FileAnchor.beside(file).read()
        with reading(file) as db:
            verdict = verify_store(SqlReads(db), anchor)
    if as_json:
        told = {
            "good": verdict.good,
            "seq": verdict.seq,
            "anchored": verdict.anchored,
            "problem": verdict.problem,
        }
        click.echo(json.dumps(told))
    elif verdict.good:
        click.echo(f"{verdict.seq} records, all as they were written; anchored up to {verdict.anchored}.")
    else:
        click.echo(f"Tampered with: {verdict.problem}")
    if not verdict.good:
        raise click.exceptions.Exit(1)


@audit.command()
@click.option("--session", metavar="ID", help="Only this session's records.")
@click.option("--output", type=click.Path(path_type=Path), help="A file to make; otherwise standard output.")
@path_option
def export(*, session: str | None, output: Path | None, path: Path | None) -> None:
    """Write records as JSON lines, each with its place and digest in the chain."""
    wanted = None if session is None else parse_session_id(session)
    with exit_code(), reading(database(path)) as db:
        rows = SqlReads(db).audit_rows(session_id=wanted)
        if output is None:
            for row in rows:
                click.echo(_line(row))
        else:
            _write(output, (_line(row) for row in rows))


def _write(output: Path, lines: Iterator[str]) -> None:
    import os

    from holdfast.model import codes
    from holdfast.model.errors import HoldfastError
    from holdfast.store.database import told

    with told(output):
        try:
            descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise HoldfastError(
                codes.FILE_EXISTS, f"'{output}' exists already. Nothing was changed."
            ) from None
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in lines)


def _line(row: AuditRow) -> str:
    # The body goes in as it is: it is what the digest was made of.
    return f'{{"seq":{row.seq},"digest":"{row.digest.hex()}","record":{row.body}}}'


def _cells(seq: int, record: AuditRecord) -> tuple[str, ...]:
    what = ".".join(part for part in (record.server, record.tool) if part)
    when = record.at.isoformat(sep=" ", timespec="milliseconds")
    duration = f"{record.duration_ms:.1f}" if record.duration_ms else ""
    shown = (when, record.session_id, record.kind, what, record.outcome, duration, record.reason)
    return (str(seq), *map(_visible, shown))


def _visible(text: str) -> str:
    """The text with everything that could move the cursor or hide a letter spelled out."""
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )
