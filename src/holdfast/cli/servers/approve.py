"""`holdfast servers approve`: review and approve servers and tools."""

import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.open_session import SessionOptions, open_session, run_with_host, session_options
from holdfast.cli.output import ask, confirm, print_for_review, print_line, print_wrapped
from holdfast.cli.servers.describe_entry import quote
from holdfast.cli.servers.review_server import Decision, Rights, review_servers
from holdfast.cli.servers.user_name import user_name
from holdfast.host.approvals import mask_definition
from holdfast.host.host import Host
from holdfast.masking.mask import Mask
from holdfast.model.trust import Trust
from holdfast.resolve.screen_tools import ToolWithoutHints, WithheldTool
from holdfast.resolve.validate import is_granted_host
from holdfast.session.session import Session
from holdfast.wire.mcp.tools import Tool

_MAX_COMPARED_LINES = 2000  # comparing more would take too long


@click.command()
@click.argument("names", nargs=-1)
@session_options
@click.option(
    "--confined", "rights", flag_value="confined", help="Approve the servers as confined, without asking."
)
@click.option(
    "--direct", "rights", flag_value="direct", help="Approve the servers with your rights, without asking."
)
@click.option(
    "--readable",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Another path that a confined server may read. Implies --confined. Can be repeated.",
)
@click.option(
    "--network",
    multiple=True,
    metavar="HOST",
    help="A host that a confined server may reach. Implies --confined. Can be repeated.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Approve everything that is shown, without asking: servers as confined in a sandboxed session, otherwise with"
    " your rights.",
)
def approve(
    names: tuple[str, ...],
    options: SessionOptions,
    *,
    rights: str | None,
    readable: tuple[Path, ...],
    network: tuple[str, ...],
    yes: bool,
) -> None:
    """Review and approve a project's servers, and new or changed tools.

    Shows each server of the project's .mcp.json that you have not approved, with the files that it runs, then the
    tools that are new or changed since you approved them, and asks you to allow them. A server runs confined, in all
    sessions, or with your rights, in direct sessions. An approval is only for what was shown: after a change, the
    server or tool needs a new approval. With NAMES, only these servers.

    \b
    Examples:
      holdfast servers approve
      holdfast servers approve github --confined
      holdfast servers approve github --confined --network api.github.com
    """
    if readable or network:
        if rights == Rights.DIRECT:
            raise click.UsageError("--direct cannot be combined with --readable or --network.")
        rights = Rights.CONFINED
    for host in network:
        if not is_granted_host(host):
            raise click.UsageError(
                f"--network: {host[:80]!r} is not a host name. Write example.org or example.org:443."
            )
    is_asking = sys.stdin.isatty() and not yes
    if rights is None and not yes and not is_asking:
        raise click.UsageError(
            "Cannot ask for approval without a terminal. Review each server with `holdfast servers explain NAME`, "
            "then add --confined, or --direct to approve it with your rights."
        )

    async def ask_user(question: str) -> str:
        return ask(question)

    async def work(host: Host) -> None:
        opening = options.to_open_options()
        given = Rights(rights) if rights is not None else None
        if given is None and yes:
            is_sandboxed = await host.trust_of(opening) is Trust.SANDBOXED
            given = Rights.CONFINED if is_sandboxed else Rights.DIRECT
        decision = Decision(
            ask=ask_user if is_asking else None,
            rights=given,
            readable=tuple(str(path.resolve()) for path in readable),
            network=network,
        )
        decided = await review_servers(host, opening, decision, names=names)
        async with open_session(host, opening) as session:
            if yes or is_asking:
                decided += await _review_tools(host, session, names, yes=yes)
            else:
                decided += _say_what_awaits(session, names)
        if not decided:
            print_line("Nothing awaits approval.")

    run_with_host(work)


def _say_what_awaits(session: Session, names: tuple[str, ...]) -> int:
    """Say which tools were not decided about, because there is no terminal to ask at."""
    waiting = [
        name for name, tools in session.awaiting_approval.items() if tools and (not names or name in names)
    ]
    for name in waiting:
        print_wrapped(f"{quote(name)} has new or changed tools. To approve them, add --yes.")
    return len(waiting)


async def _review_tools(host: Host, session: Session, names: tuple[str, ...], *, yes: bool) -> int:
    decided = 0
    for name, without_hints in session.offered_without_hints.items():
        if names and name not in names:
            continue
        if withheld := session.awaiting_approval.get(name, ()):
            print_wrapped(f"{quote(name)} has tools that are new or have changed since you approved them:")
            decided += await _review_definitions(host, session, name, withheld, yes=yes)
        if without_hints:
            print_wrapped(
                f"{quote(name)} says this about its tools. Until you approve this, Holdfast ignores these hints: "
                "it asks you even before tools that claim to be read-only:"
            )
            decided += await _review_definitions(host, session, name, without_hints, yes=yes)
    return decided


async def _review_definitions(
    host: Host, session: Session, server: str, tools: Sequence[WithheldTool | ToolWithoutHints], *, yes: bool
) -> int:
    spec, owner, mask = session.server(server), session.context.user_id or "", session.record.mask
    lines: list[str] = []
    for tool in tools:
        approved = await host.approvals.last_definition(spec, tool.name, owner=owner, mask=mask)
        new_lines = [*describe_tool(tool.definition)]
        old_lines = _unmask([*describe_tool(approved)], tool.definition, mask)
        lines += (f"  {quote(tool.name)}", *(f"    {line}" for line in _mark_changes(old_lines, new_lines)))
    if not print_for_review(lines):
        print_line(
            f"The definitions of these {len(tools)} tools are longer than the screen: scroll up and read all of them."
        )
    if yes or confirm("Approve them as they are shown?"):
        await host.approvals.approve_tools(
            spec,
            {tool.name: tool.fingerprint for tool in tools},
            by=user_name(),
            owner=owner,
            definitions=[tool.definition for tool in tools if tool.definition is not None],
            mask=mask,
        )
        print_line("  approved")
    return 1


def _unmask(stored: list[str], definition: Tool | None, mask: Mask) -> list[str]:
    """Return the lines of a stored definition. Lines in which secrets were masked, but nothing changed, are unmasked."""
    if definition is None:
        return stored
    masked = describe_tool(mask_definition(definition, mask))
    current = dict(zip(masked, describe_tool(definition), strict=False))
    return [current.get(line, line) for line in stored]


def _mark_changes(old_lines: list[str], new_lines: list[str]) -> Iterator[str]:
    """Return all lines; those that were added or removed begin with + or -.

    If there is no earlier definition, all lines are returned unmarked.
    """
    if not old_lines or old_lines == new_lines or len(new_lines) > _MAX_COMPARED_LINES:
        yield from new_lines
        return
    lines = difflib.unified_diff(old_lines, new_lines, lineterm="", n=_MAX_COMPARED_LINES)
    yield from islice(lines, 3, None)  # skip the header


def describe_tool(definition: Tool | None) -> Iterator[str]:
    """Return every line of a tool's definition for review: its texts, its annotations and its schemas."""
    if definition is None:
        return
    content: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(definition))
    for name, value in content.items():
        if name == "name":
            continue
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        first, *rest = text.split("\n")
        yield f"{name}: {first}"
        yield from (f"  {line}" for line in rest)
