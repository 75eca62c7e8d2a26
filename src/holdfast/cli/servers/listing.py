"""`holdfast servers list` and `explain`: who stands, who fell, and why."""

import json
from typing import Any

import click

from holdfast.cli import table
from holdfast.cli.opening import Where, session_options, with_host
from holdfast.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.resolution import Resolution
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio
from holdfast.resolve.approval import Shown, show
from holdfast.resolve.entry import Entry, Loaded


@click.command("list")
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def list_servers(where: Where, *, as_json: bool) -> None:
    """List the servers, and which a session here gets.

    Nothing is started: this is what the lists, approvals, the workspace and the session's trust decide.
    """
    loaded, resolution = _plan(where)
    if as_json:
        click.echo(json.dumps(_for_programs(resolution), indent=2))
        return
    rows = [(server.name, server.source, _how(server), _walls(server)) for server in resolution.servers]
    sources = {entry.name: entry.source for entry in loaded.entries}
    rows += [
        (refusal.server, sources.get(refusal.server, ""), "", f"refused ({refusal.stage}): {refusal.reason}")
        for refusal in resolution.refusals
    ]
    if rows:
        table.show(("server", "from", "reached by", "status"), rows)
    else:
        click.echo(
            "There are no servers here yet. Try: holdfast servers import --from claude-desktop", err=True
        )
    for caution in resolution.cautions:
        click.echo(f"{table.plain(caution.server)}: {table.plain(caution.text)}", err=True)


@click.command()
@click.argument("name")
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def explain(name: str, where: Where, *, as_json: bool) -> None:
    """Say all there is to know about one server.

    Exits with 0 when a session here gets the server, 1 when not.
    """
    loaded, resolution = _plan(where)
    entries = [entry for entry in loaded.entries if entry.name == name]
    stands = next((server for server in resolution.servers if server.name == name), None)
    refusals = [refusal for refusal in resolution.refusals if refusal.server == name]
    if not entries and stands is None and not refusals:
        raise HoldfastError(codes.UNKNOWN_SERVER, f"There is no server {name!r} here.")
    cautions = [caution.text for caution in resolution.cautions if caution.server == name]
    if as_json:
        told = {
            "name": name,
            "stands": stands is not None,
            "entries": [_entry_for_programs(entry) for entry in entries],
            "refusals": [{"stage": refusal.stage, "reason": refusal.reason} for refusal in refusals],
            "cautions": cautions,
        }
        click.echo(json.dumps(told, indent=2))
    else:
        for entry in entries:
            click.echo(f"{table.plain(name)} is written in {table.plain(entry.origin)} ({entry.source}).")
            for line in shown_lines(show(entry)):
                click.echo(f"  {line}")
        if stands is not None:
            click.echo(f"A session here gets it: {_walls(stands)}.")
        for refusal in refusals:
            click.echo(f"Refused at {refusal.stage}: {table.plain(refusal.reason)}")
        for caution in cautions:
            click.echo(f"Beware: {table.plain(caution)}")
    if stands is None:
        raise click.exceptions.Exit(1)


def shown_lines(shown: Shown) -> list[str]:
    """An entry as a person should see it: every word of it, but no secret value."""
    lines: list[str] = []
    if shown.command:
        lines.append("command:   " + " ".join(table.plain(json.dumps(word)) for word in shown.command))
    if shown.url:
        lines.append(f"address:   {table.plain(shown.url)}")
    if shown.env_names:
        lines.append(f"sets:      {', '.join(map(table.plain, shown.env_names))}")
    if shown.header_names:
        lines.append(f"headers:   {', '.join(map(table.plain, shown.header_names))}")
    if shown.fills_in:
        lines.append(f"is given:  {', '.join(shown.fills_in)} from your environment")
    return lines


def _plan(where: Where) -> tuple[Loaded, Resolution]:
    async def work(host: Host) -> tuple[Loaded, Resolution]:
        return await host.plan(where.opening())

    return with_host(work)


def _how(server: ServerSpec) -> str:
    match server.transport:
        case Stdio(command=command, args=args):
            return " ".join([command, *args])
        case Http(url=url) | Sse(url=url):
            return url
        case InProcess():
            return "(built in)"


def _walls(server: ServerSpec) -> str:
    if server.confinement is None:
        match server.transport:
            case Stdio():
                return "direct"
            case InProcess():
                return "in this process, within the roots"
            case Http() | Sse():
                return "remote"
    network = ", ".join(server.confinement.network)
    return f"confined, network: {network or 'none'}"


def _for_programs(resolution: Resolution) -> dict[str, Any]:
    return {
        "servers": [
            {
                "name": server.name,
                "source": server.source,
                "origin": server.origin,
                "reached_by": _how(server),
                "lifetime": server.lifetime,
                "confined": server.confinement is not None,
            }
            for server in resolution.servers
        ],
        "refusals": [
            {"server": refusal.server, "stage": refusal.stage, "reason": refusal.reason}
            for refusal in resolution.refusals
        ],
        "cautions": [
            {"server": caution.server, "stage": caution.stage, "text": caution.text}
            for caution in resolution.cautions
        ],
    }


def _entry_for_programs(entry: Entry) -> dict[str, Any]:
    shown = show(entry)
    return {
        "source": entry.source,
        "origin": entry.origin,
        "command": list(shown.command),
        "url": shown.url,
        "sets": list(shown.env_names),
        "headers": list(shown.header_names),
        "is_given": list(shown.fills_in),
        "digest": entry.digest,
    }
