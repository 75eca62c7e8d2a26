"""`holdfast servers approve`: review and approve servers and tools."""

import getpass
import sys
from collections.abc import Sequence

import click

from holdfast.cli.open_session import SessionOptions, open_session, run_with_host, session_options
from holdfast.cli.servers.list import describe_entry
from holdfast.cli.text import replace_unprintable
from holdfast.host.host import Host
from holdfast.model.resolution import Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.resolve.approval_keys import SERVER_KEY_PREFIX
from holdfast.resolve.entry_summary import summarize
from holdfast.resolve.screen_tools import WithheldTool
from holdfast.session.session import Session


@click.command()
@click.argument("names", nargs=-1)
@session_options
@click.option("--yes", is_flag=True, help="Approve everything that is shown, without asking.")
def approve(names: tuple[str, ...], options: SessionOptions, *, yes: bool) -> None:
    """Review and approve a project's servers, and new or changed tools.

    Shows each server of the project's .mcp.json that you have not approved, then the tools that are new or changed
    since you approved them, and asks you to allow them. An approval is only for what was shown: after a change, the
    server or tool needs a new approval. With NAMES, only these servers.

    \b
    Examples:
      holdfast servers approve
      holdfast servers approve github --yes
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(
            "Cannot ask for approval without a terminal. Review with `holdfast servers list`, then add --yes."
        )

    async def work(host: Host) -> None:
        decided = await _review_servers(host, options, names, yes=yes)
        async with open_session(host, options.to_open_options()) as session:
            decided += await _review_tools(host, session, names, yes=yes)
        if not decided:
            click.echo("Nothing awaits approval.")

    run_with_host(work)


async def _review_servers(host: Host, options: SessionOptions, names: tuple[str, ...], *, yes: bool) -> int:
    loaded, resolution = await host.plan(options.to_open_options())
    approvals = await host.store.read(lambda tx: tx.approvals(SERVER_KEY_PREFIX))
    approved = {approval.content_hash for approval in approvals}
    refused = {refusal.server for refusal in resolution.refusals if refusal.stage is Stage.ADMIT}
    decided = 0
    for entry in loaded.entries:
        is_waiting = entry.source is Source.PROJECT and entry.digest not in approved and entry.name in refused
        if not is_waiting or (names and entry.name not in names):
            continue
        click.echo(f"{replace_unprintable(entry.name)}, from {replace_unprintable(entry.origin)}")
        for line in describe_entry(summarize(entry)):
            click.echo(f"  {line}")
        decided += 1
        if yes or click.confirm("Allow it in this project's sessions?"):
            await host.approvals.approve_server(entry, by=getpass.getuser())
            click.echo("  approved")
    return decided


async def _review_tools(host: Host, session: Session, names: tuple[str, ...], *, yes: bool) -> int:
    decided = 0
    for name, waiting in session.awaiting_approval.items():
        if not waiting or (names and name not in names):
            continue
        decided += 1
        await _review_server_tools(host, session.server(name), waiting, yes=yes)
    return decided


async def _review_server_tools(
    host: Host, spec: ServerSpec, waiting: Sequence[WithheldTool], *, yes: bool
) -> None:
    click.echo(
        f"{replace_unprintable(spec.name)} has tools that are new or have changed since you approved them:"
    )
    for tool in waiting:
        click.echo(f"  {tool.name}: {replace_unprintable(tool.description or 'no description')}")
    if yes or click.confirm("Allow them?"):
        await host.approvals.approve_tools(
            spec, {tool.name: tool.fingerprint for tool in waiting}, by=getpass.getuser()
        )
        click.echo("  approved")
