"""`holdfast servers approve`: a person looks at what waits, and decides."""

import getpass
import sys

import click

from holdfast.cli import table
from holdfast.cli.opening import Where, opened, session_options, with_host
from holdfast.cli.servers.listing import shown_lines
from holdfast.host import Host
from holdfast.model.resolution import Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.resolve.approval import OF_SERVERS, show
from holdfast.resolve.pins import Held
from holdfast.session.session import Session


@click.command()
@click.argument("names", nargs=-1)
@session_options
@click.option("--yes", is_flag=True, help="Say yes to all that is shown, without asking.")
def approve(names: tuple[str, ...], where: Where, *, yes: bool) -> None:
    """Look at what waits for approval, and decide.

    First the servers of the project's own .mcp.json, each to the letter; then the tools that have changed since
    their server was approved. An answer holds for exactly what was shown: a changed word is asked about again.
    With NAMES, only these servers.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(
            "There is nobody to ask here. Look with `holdfast servers list`, then use --yes."
        )

    async def work(host: Host) -> None:
        decided = await _entries(host, where, names, yes=yes)
        async with opened(host, where.opening()) as session:
            decided += await _tools(host, session, names, yes=yes)
        if not decided:
            click.echo("Nothing waits for approval.")

    with_host(work)


async def _entries(host: Host, where: Where, names: tuple[str, ...], *, yes: bool) -> int:
    loaded, resolution = await host.plan(where.opening())
    approvals = await host.store.read(lambda reads: reads.approvals(OF_SERVERS))
    approved = {approval.content_hash for approval in approvals}
    refused = {refusal.server for refusal in resolution.refusals if refusal.stage is Stage.ADMIT}
    decided = 0
    for entry in loaded.entries:
        waits = entry.source is Source.PROJECT and entry.digest not in approved and entry.name in refused
        if not waits or (names and entry.name not in names):
            continue
        click.echo(f"{table.plain(entry.name)}, from {table.plain(entry.origin)}")
        for line in shown_lines(show(entry)):
            click.echo(f"  {line}")
        decided += 1
        if yes or click.confirm("Let it run in this project's sessions?"):
            await host.approve_entry(entry, by=getpass.getuser())
            click.echo("  approved")
    return decided


async def _tools(host: Host, session: Session, names: tuple[str, ...], *, yes: bool) -> int:
    decided = 0
    for name, held in session.held_back.items():
        waiting = [tool for tool in held if tool.fingerprint]
        if not waiting or (names and name not in names):
            continue
        decided += 1
        await _decide(host, session.server(name), waiting, yes=yes)
    return decided


async def _decide(host: Host, spec: ServerSpec, waiting: list[Held], *, yes: bool) -> None:
    click.echo(f"{table.plain(spec.name)} offers tools that nobody has approved as they are:")
    for tool in waiting:
        click.echo(f"  {tool.name}: {table.plain(tool.description or 'no description')}")
    if yes or click.confirm("Offer them to this server's sessions?"):
        await host.approve_tools(
            spec, {tool.name: tool.fingerprint for tool in waiting}, by=getpass.getuser()
        )
        click.echo("  approved")
