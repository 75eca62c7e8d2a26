"""`holdfast servers approvals` and `revoke`: list all approvals, and revoke that of a server."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from holdfast.audit.approvals import needs_record, unrecorded_approvals
from holdfast.audit.audit import Audit
from holdfast.cli.open_store import run_with_read_only_store, run_with_writable_store
from holdfast.cli.options import json_lines_option
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.cli.servers.describe_entry import describe_grants
from holdfast.cli.user_name import user_name
from holdfast.host.approvals import Approvals
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.resolve.grant import ConfinedGrant, decode_grant
from holdfast.resolve.load import PROJECT_FILE
from holdfast.store.store import ReadTx, Store
from holdfast.store.types import Approval

_COLUMNS = ("server", "approved", "project file", "by", "when", "audit")
_KEYS = ("file", "by", "at", "audit")
_CONFINED = "confined server"
_KIND_TEXTS = {
    _CONFINED: "the server, confined",
    "confined program": "the program, confined",
    "edits": "later edits of its program",
    "instructions": "the project's instructions for the model",
}
# Without programs: a program is approved together with its server.
_LISTED_KINDS = ("server", "edits", _CONFINED, "agent", "instructions", "pin")


@click.command("approvals")
@json_lines_option
def list_approvals(*, as_json: bool) -> None:
    """List the servers, tools, agents and instructions (AGENTS.md) that you have approved.

    Each is shown with its project file and with what was granted, oldest first.

    `holdfast servers revoke` revokes the approval of a server, `holdfast agents revoke` that of an agent or an AGENTS.md.

    Holdfast records each approval in the audit. If the column "audit" says "no record", someone wrote the approval into the store's
    file without Holdfast.

    \b
    Example:
      holdfast servers approvals
    """

    def read(tx: ReadTx) -> list[dict[str, Any]]:
        unrecorded = {(approval.key, approval.content_hash) for approval in unrecorded_approvals(tx)}
        return [*_rows(sorted(tx.approvals(), key=lambda approval: approval.at), unrecorded)]

    async def work(store: Store) -> list[dict[str, Any]]:
        return await store.read(read)

    rows = run_with_read_only_store(None, work)
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(_COLUMNS, [(row["server"], _describe(row), *(row[key] for key in _KEYS)) for row in rows])
    else:
        print_line(
            "Nothing is approved yet. To review a project's servers: holdfast servers approve", err=True
        )


def _rows(approvals: list[Approval], unrecorded: set[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    for approval in filter(needs_record, approvals):
        kind, file_or_user, server, *rest = parse_key(approval.key)
        if kind not in _LISTED_KINDS and (approval.key, approval.content_hash) not in unrecorded:
            continue
        is_tool = kind == "pin"
        grant = decode_grant(rest[-1]) if kind == _CONFINED else ConfinedGrant()
        yield {
            "server": server,
            "approved": f"the tool {rest[-1]}" if is_tool else _KIND_TEXTS.get(kind, f"the {kind}"),
            "file": "" if is_tool else file_or_user,
            "by": approval.by,
            "at": approval.at.isoformat(sep=" ", timespec="seconds"),
            "audit": "no record" if (approval.key, approval.content_hash) in unrecorded else "recorded",
            "network": list(grant.network),
            "readable": list(grant.readable),
            "writable": list(grant.writable),
        }


def _describe(row: Mapping[str, Any]) -> str:
    """What was approved, with the hosts and paths that were granted in addition to those of the entry."""
    grants = row["network"], row["readable"], row["writable"]
    return f"{row['approved']}, {describe_grants(*grants)}" if any(grants) else row["approved"]


def parse_key(key: str) -> list[str]:
    """Split the key of an approval: its kind, the project's file or folder (for a tool: the user's id), the server's name, and details.

    The key is JSON, unless someone wrote another key into the store's file. Returns at least four texts.
    """
    try:
        kind, file_or_user, server, *rest = json.loads(key)
    except (TypeError, ValueError):
        return ["server", "", key, ""]
    return [str(part) for part in (kind, file_or_user, server, *(rest or [""]))]


@click.command()
@click.argument("name")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="The project file that configures the server. Default: .mcp.json in this folder.",
)
def revoke(*, name: str, file: Path | None) -> None:
    """Revoke the approval of a project's server.

    From now on, no session gets the server until you approve it again. If it is running, it is ended within a few
    seconds. The command also works after the file or the project was deleted.

    \b
    Examples:
      holdfast servers revoke github
      holdfast servers revoke github --file ~/shop/.mcp.json
    """
    given = file if file is not None else Path(PROJECT_FILE)
    # An approval has the path without links and `..`. The path as it is written counts too: it may lead elsewhere by now.
    origins = [str(given.parent.resolve() / given.name), str(given.absolute())]

    async def work(store: Store, audit: Audit) -> bool:
        approvals = Approvals(store, audit, pin_tools="")
        return any([await approvals.revoke_server(each, name, by=user_name()) for each in {*origins}])

    if not run_with_writable_store(None, work):
        raise HoldfastError(
            codes.UNKNOWN_SERVER,
            f"No server {name[:80]!r} of '{origins[0]}' is approved.",
            hint="`holdfast servers approvals` lists all approvals.",
        )
    print_line(f"Revoked: {name!r} of {origins[0]}. If it is running, it is ended within a few seconds.")
