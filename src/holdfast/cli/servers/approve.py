"""`holdfast servers approve`: review what awaits approval."""

import getpass
import sys

import click

from holdfast.cli.open_session import SessionOptions, open_session, run_with_host, session_options
from holdfast.cli.servers.list import describe_entry
from holdfast.cli.text import replace_unprintable
from holdfast.host.host import Host
from holdfast.model.resolution import Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.resolve.approvals import SERVER_SUBJECT_PREFIX, summarize
from holdfast.resolve.screen import UnapprovedTool
from holdfast.session.session import Session


@click.command()
@click.argument("names", nargs=-1)
@session_options
@click.option("--yes", is_flag=True, help="Approve everything that is shown, without asking.")
def approve(names: tuple[str, ...], options: SessionOptions, *, yes: bool) -> None:
    """Review and approve a project's servers and changed tools.

    Shows the servers of the project's .mcp.json, then tools whose definition changed since their server was
    approved, and asks about each. An approval holds for exactly what was shown; after a change you are asked again.
    With NAMES, only these servers.

    \b
    Examples:
      holdfast servers approve
      holdfast servers approve github --yes
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(
            "There is no terminal to ask at. Review with `holdfast servers list`, then add --yes."
        )

    async def work(host: Host) -> None:
        decided = await _review_servers(host, options, names, yes=yes)
        async with open_session(host, options.to_opening()) as session:
            decided += await _review_tools(host, session, names, yes=yes)
        if not decided:
            click.echo("Nothing awaits approval.")

    run_with_host(work)


async def _review_servers(host: Host, options: SessionOptions, names: tuple[str, ...], *, yes: bool) -> int:
    loaded, resolution = await host.plan(options.to_opening())
    approvals = await host.store.read(lambda tx: tx.approvals(SERVER_SUBJECT_PREFIX))
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
    for name, unapproved in session.awaiting_approval.items():
        waiting = [tool for tool in unapproved if tool.fingerprint]
        if not waiting or (names and name not in names):
            continue
        decided += 1
        await _decide(host, session.server(name), waiting, yes=yes)
    return decided


async def _decide(host: Host, spec: ServerSpec, waiting: list[UnapprovedTool], *, yes: bool) -> None:
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
