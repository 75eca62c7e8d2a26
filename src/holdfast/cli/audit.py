"""`holdfast audit`: what was done, and whether the record of it is whole."""

import json
import sys
from pathlib import Path

import click

from holdfast.audit.chain import Verdict
from holdfast.audit.record import AuditKind, AuditRecord, read_record
from holdfast.audit.verify import verify_file
from holdfast.cli import table
from holdfast.cli.group import Group
from holdfast.cli.named import session_in_audit
from holdfast.cli.output import output_option, write_lines
from holdfast.cli.pages import limit_options, say_beyond
from holdfast.cli.place import database, exit_code, path_option
from holdfast.cli.sessions.work import SHORT
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.rows import AuditRow
from holdfast.store.sqlreads import SqlReads
from holdfast.store.upkeep import reading

session_option = click.option(
    "--session", metavar="ID", help="Only this session's records; the beginning of its id is enough."
)
COLUMNS = ("seq", "when", "session", "kind", "what", "outcome", "ms", "reason")


@click.group(cls=Group)
def audit() -> None:
    """Show, check and export the record of what was done.

    Every tool call, refusal, permission decision and denied attempt leaves one record. Each record is
    chained to the one before by its hash, so that none can be changed or removed unseen.
    """


@audit.command("list")
@session_option
@click.option(
    "--kind", type=click.Choice([kind.value for kind in AuditKind]), help="Only records of this kind."
)
@limit_options(50)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, for programs.")
@path_option
def show(
    *, session: str | None, kind: str | None, limit: int | None, as_json: bool, path: Path | None
) -> None:
    """Print the latest records, the oldest of them first."""
    from collections import deque

    latest: deque[AuditRow] = deque(maxlen=limit)
    count = 0
    with exit_code(), reading(database(path)) as db:
        reads = SqlReads(db)
        for row in reads.audit_rows(session_id=session_in_audit(reads, session)):
            if kind in (None, read_record(row.body).kind):
                latest.append(row)
                count += 1
    if as_json:
        with exit_code():
            write_lines(None, map(_line, latest))
    elif latest:
        table.show(COLUMNS, [_cells(row.seq, read_record(row.body)) for row in latest])
    else:
        click.echo("There are no such records.", err=True)
    say_beyond(len(latest), count - len(latest))


@audit.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@path_option
def verify(*, as_json: bool, path: Path | None) -> None:
    """Check that no record was changed, moved, removed or cut off.

    Exits with 0 when all is well, 1 when records were tampered with or are damaged, 2 when called wrongly, 3 when the store cannot be read.
    """
    with exit_code():
        found = verify_file(database(path))
    verdict = found or Verdict(seq=0, anchored=0)
    if as_json:
        told = {
            "good": verdict.good,
            "seq": verdict.seq,
            "anchored": verdict.anchored,
            "problem": verdict.problem,
        }
        click.echo(json.dumps(told))
    elif found is None:
        click.echo("There are no records yet.")
    elif verdict.good:
        click.echo(f"{verdict.seq} records, all as they were written; anchored up to {verdict.anchored}.")
    else:
        click.echo(f"Tampered with: {table.plain(verdict.problem)}")
    if not verdict.good:
        raise click.exceptions.Exit(1)


@audit.command()
@session_option
@output_option
@path_option
def export(*, session: str | None, output: Path | None, path: Path | None) -> None:
    """Write records as JSON lines, each with its store, its place and its digest in the chain."""
    with exit_code(), reading(database(path)) as db:
        reads = SqlReads(db)
        rows = reads.audit_rows(session_id=session_in_audit(reads, session))
        store = f'"store":"{reads.store_id().hex()}",'
        write_lines(output, (_line(row, store) for row in rows))


def _line(row: AuditRow, store: str = "") -> str:
    if not row.body.isascii():
        raise HoldfastError(
            codes.STORE_CORRUPT, f"Record {row.seq} of the audit was changed. Run `holdfast audit verify`."
        )
    # The body goes in as it is: it is what the digest was made of.
    return f'{{{store}"seq":{row.seq},"digest":"{row.digest.hex()}","record":{row.body}}}'


def _cells(seq: int, record: AuditRecord) -> tuple[str, ...]:
    what = ".".join(part for part in (record.server, record.tool) if part)
    when = record.at.isoformat(sep=" ", timespec="milliseconds")
    duration = f"{record.duration_ms:.1f}" if record.duration_ms else ""
    session = record.session_id[:SHORT] if sys.stdout.isatty() else record.session_id
    shown = (when, session, record.kind, what, record.outcome, duration, record.reason)
    return (str(seq), *map(table.spelled, shown))
