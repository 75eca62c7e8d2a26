"""`holdfast servers approvals` and `revoke`: list the approvals of servers and tools, and take one back."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.audit.approvals import needs_record, unrecorded_approvals
from holdfast.audit.audit import Audit
from holdfast.cli.open_store import run_with_read_only_store, run_with_writable_store
from holdfast.cli.options import json_lines_option
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.cli.servers.user_name import user_name
from holdfast.host.approvals import Approvals
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.resolve.load import PROJECT_FILE
from holdfast.store.store import ReadTx, Store
from holdfast.store.types import Approval

_COLUMNS = ("server", "approved", "project file", "by", "when", "audit")
_KINDS = {"confined server": "the server, confined", "confined program": "the program, confined"}
_LISTED = ("server", "confined server", "pin")  # a program is approved together with its server


@click.command("approvals")
@json_lines_option
def list_approvals(*, as_json: bool) -> None:
    """List the servers and tools that you have approved, with their project, oldest first.

    Every approval has an audit record. One without a record was not given by `holdfast servers approve`:
    someone wrote it into the store's file.

    \b
    Example:
      holdfast servers approvals
    """

    def read(tx: ReadTx) -> list[dict[str, str]]:
        unrecorded = {(approval.key, approval.content_hash) for approval in unrecorded_approvals(tx)}
        return [*_rows(sorted(tx.approvals(), key=lambda approval: approval.at), unrecorded)]

    async def work(store: Store) -> list[dict[str, str]]:
        return await store.read(read)

    rows = run_with_read_only_store(None, work)
    if as_json:
        for row in rows:
            print_json(row, indent=None)
    elif rows:
        print_table(_COLUMNS, [tuple(row.values()) for row in rows])
    else:
        print_line(
            "Nothing is approved yet. To review a project's servers: holdfast servers approve", err=True
        )


def _rows(approvals: list[Approval], unrecorded: set[tuple[str, str]]) -> Iterator[dict[str, str]]:
    for approval in filter(needs_record, approvals):
        what, origin_or_owner, server, *rest = _parts(approval.key)
        if what not in _LISTED and (approval.key, approval.content_hash) not in unrecorded:
            continue
        is_tool = what == "pin"
        yield {
            "server": server,
            "approved": f"the tool {rest[-1]}" if is_tool else _KINDS.get(what, f"the {what}"),
            "file": "" if is_tool else origin_or_owner,
            "by": approval.by,
            "at": approval.at.isoformat(sep=" ", timespec="seconds"),
            "audit": "no record" if (approval.key, approval.content_hash) in unrecorded else "recorded",
        }


def _parts(key: str) -> list[str]:
    """The parts of an approval's key. A key that someone else wrote into the file may not be valid JSON."""
    try:
        what, origin_or_owner, server, *rest = json.loads(key)
    except ValueError:
        return ["server", "", key, ""]
    return [str(part) for part in (what, origin_or_owner, server, *(rest or [""]))]


@click.command()
@click.argument("name")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="The project file that configures the server. Default: .mcp.json in this folder.",
)
def revoke(*, name: str, file: Path | None) -> None:
    """Take back the approval of a project's server.

    From now on, no session gets the server until you approve it again. Where it is running, it is ended within a few
    seconds. The file and the project need not exist any more.

    \b
    Examples:
      holdfast servers revoke github
      holdfast servers revoke github --file ~/shop/.mcp.json
    """
    origin = str(file.absolute() if file is not None else Path.cwd().resolve() / PROJECT_FILE)

    async def work(store: Store, audit: Audit) -> bool:
        return await Approvals(store, audit, pin_tools="").revoke_server(origin, name, by=user_name())

    if not run_with_writable_store(None, work):
        raise HoldfastError(
            codes.UNKNOWN_SERVER,
            f"No server {name[:80]!r} of '{origin}' is approved.",
            hint="`holdfast servers approvals` lists all approvals.",
        )
    print_line(f"Revoked: {name!r} of {origin}. Where it is running, it is ended within a few seconds.")
