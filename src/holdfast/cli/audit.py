"""`holdfast audit`: list, verify and export the audit records."""

import sys
from pathlib import Path

import click

from holdfast.audit.chain import Verdict, parse_head
from holdfast.audit.record import AuditKind, AuditRecord, decode_record
from holdfast.audit.verify_file import verify_file
from holdfast.cli.click_groups import FullHelpGroup
from holdfast.cli.find_session import find_audited_session, short_id
from holdfast.cli.open_store import exit_if_unreadable, store_file
from holdfast.cli.options import json_lines_option, json_option, output_option, path_option
from holdfast.cli.output import print_json, print_line, print_table, write_json_lines
from holdfast.cli.paging import limit_options, print_remaining
from holdfast.cli.terminal_text import escape_unprintable
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.plural import count
from holdfast.store.anchor import Head
from holdfast.store.maintenance import open_for_reading
from holdfast.store.types import AuditRow

session_option = click.option(
    "--session", metavar="ID", help="Only records of this session; the first characters of its id are enough."
)
COLUMNS = ("seq", "when", "session", "kind", "what", "outcome", "ms", "reason")


@click.group(cls=FullHelpGroup)
def audit() -> None:
    """List, verify and export the audit records.

    The audit records tool calls, refused servers, permission decisions, approvals, denied attempts, created and revoked tokens, and
    deleted sessions. Each record contains a hash of the previous one, so that a changed or removed record is detected.

    \b
    Examples:
      holdfast audit list --kind refusal
      holdfast audit verify
      holdfast audit export --output audit.jsonl
    """


@audit.command("list")
@session_option
@click.option(
    "--kind", type=click.Choice([kind.value for kind in AuditKind]), help="Only records of this kind."
)
@click.option("--user", metavar="ID", help="Only records about sessions or tokens of this user.")
@limit_options(50)
@json_lines_option
@path_option
def list_records(
    *,
    session: str | None,
    kind: str | None,
    user: str | None,
    limit: int | None,
    as_json: bool,
    path: Path | None,
) -> None:
    """Print the latest records, oldest first.

    \b
    Example:
      holdfast audit list --session 3f2a --kind call
    """
    from collections import deque

    latest: deque[AuditRow] = deque(maxlen=limit)
    matches = 0
    with exit_if_unreadable(), open_for_reading(store_file(path)) as tx:
        for row in tx.audit_rows(session_id=find_audited_session(tx, session)):
            record = decode_record(row.body)
            if kind in (None, record.kind) and user in (None, record.user_id):
                latest.append(row)
                matches += 1
    if as_json:
        with exit_if_unreadable():
            write_json_lines(None, map(_to_json_line, latest))
    elif latest:
        records = [decode_record(row.body) for row in latest]
        rows = [_table_row(row.seq, record) for row, record in zip(latest, records, strict=True)]
        if len({record.user_id for record in records}) > 1:
            users = (escape_unprintable(record.user_id) for record in records)
            print_table((*COLUMNS, "user"), [(*row, user) for row, user in zip(rows, users, strict=True)])
        else:
            print_table(COLUMNS, rows)
    else:
        print_line("No records match.", err=True)
    print_remaining(len(latest), matches - len(latest))


def _parse_head_option(context: click.Context, parameter: click.Parameter, value: str | None) -> Head | None:
    try:
        return None if value is None else parse_head(value)
    except ValueError:
        raise click.BadParameter("Give the head exactly as `holdfast audit verify` printed it.") from None


@audit.command()
@click.option(
    "--expect",
    metavar="HEAD",
    callback=_parse_head_option,
    help="A head that this command printed earlier. Its record is also checked.",
)
@json_option
@path_option
def verify(*, expect: Head | None, as_json: bool, path: Path | None) -> None:
    """Check that no record was changed, reordered or removed, not even the last ones.

    Prints the head: the number and digest of the last record. Keep it on another machine. If you give it to a later run with
    --expect, that run detects whether an older copy of the store was put back.
    Exit codes: 0 intact, 1 tampered with or damaged, 2 invalid usage, 3 the store cannot be read.

    \b
    Examples:
      holdfast audit verify && echo intact
      holdfast audit verify --expect 40:9f2c…
    """
    with exit_if_unreadable():
        found = verify_file(store_file(path), expect)
    verdict = found or Verdict(seq=0, anchored_seq=0)
    if as_json:
        report = {
            "good": verdict.is_intact,
            "seq": verdict.seq,
            "anchored": verdict.anchored_seq,
            "problem": verdict.problem,
            "head": str(verdict.head or ""),
        }
        print_json(report)
    elif found is None:
        print_line("There are no records yet.")
    elif verdict.is_intact:
        print_line(
            f"{count(verdict.seq, 'record')}, all unchanged. The anchor, a copy of the head outside the database,"
            f" confirms the first {verdict.anchored_seq}."
        )
        print_line(f"Head: {verdict.head}")
    else:
        print_line(f"{'Cannot be verified' if verdict.is_unreadable else 'Tampered with'}: {verdict.problem}")
    if not verdict.is_intact:
        raise click.exceptions.Exit(1)


@audit.command()
@session_option
@output_option
@path_option
def export(*, session: str | None, output: Path | None, path: Path | None) -> None:
    """Write the records as JSON lines, each with the id of its store, its number and its digest.

    \b
    Example:
      holdfast audit export --output audit.jsonl
    """
    with exit_if_unreadable(), open_for_reading(store_file(path)) as tx:
        rows = tx.audit_rows(session_id=find_audited_session(tx, session))
        leading_fields = f'"store":"{tx.store_id().hex()}",'
        write_json_lines(output, (_to_json_line(row, leading_fields) for row in rows))


def _to_json_line(row: AuditRow, leading_fields: str = "") -> str:
    """The record as one line of JSON. `leading_fields` is JSON text to begin the object with; it ends with a comma."""
    if not row.body.isascii():  # records are always written in ASCII
        raise HoldfastError(
            codes.STORE_CORRUPT, f"Audit record {row.seq} was changed. Run `holdfast audit verify`."
        )
    # Write the body unchanged: the digest covers its exact text.
    return f'{{{leading_fields}"seq":{row.seq},"digest":"{row.digest.hex()}","record":{row.body}}}'


def _table_row(seq: int, record: AuditRecord) -> tuple[str, ...]:
    what = ".".join(part for part in (record.server, record.tool) if part)
    when = record.at.isoformat(sep=" ", timespec="milliseconds")
    duration = f"{record.duration_ms:.1f}" if record.duration_ms else ""
    session = short_id(record.session_id) if sys.stdout.isatty() else record.session_id
    shown = (when, session, record.kind, what, record.outcome, duration, record.reason)
    return (str(seq), *map(escape_unprintable, shown))
