"""`holdfast servers list` and `explain`: which servers a session gets, and why others are refused."""

from typing import Any

import click

from holdfast.cli.open_session import SessionOptions, run_with_host, session_options
from holdfast.cli.options import json_option
from holdfast.cli.output import NO_SERVERS, print_json, print_line, print_table, print_wrapped
from holdfast.cli.servers.describe_entry import ascii_host, describe_entry
from holdfast.host.host import Host
from holdfast.masking.likely_secrets import mask_listing
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.resolution import Resolution
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio
from holdfast.resolve.entry_summary import summarize
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.server_entry import ServerEntry


@click.command("list")
@session_options
@json_option
def list_servers(options: SessionOptions, *, as_json: bool) -> None:
    """List the servers that a session here gets, and those that are refused.

    No server is started. Which servers a session gets depends on the configuration, your approvals, the workspace
    and the session's trust.

    \b
    Example:
      holdfast servers list --trust sandboxed
    """
    loaded, resolution = _plan(options)
    if as_json:
        print_json(_to_json(loaded, resolution))
        return
    rows = [
        (server.name, server.source, _target(server, loaded), _confinement(server))
        for server in resolution.servers
    ]
    sources = {entry.name: entry.source for entry in loaded.entries}
    rows += [
        (
            refusal.server,
            sources.get(refusal.server, ""),
            "",
            f"refused ({refusal.stage}): {mask_listing(refusal.reason)}",
        )
        for refusal in resolution.refusals
    ]
    if rows:
        print_table(("server", "from", "command or URL", "status"), rows)
    else:
        print_line(NO_SERVERS, err=True)
    for warning in resolution.warnings:
        print_line(f"{warning.subject}: {mask_listing(warning.text)}", err=True)


@click.command()
@click.argument("name")
@session_options
@json_option
def explain(name: str, options: SessionOptions, *, as_json: bool) -> None:
    """Show where a server is configured, and whether and why it is refused.

    Exit codes: 0 a session here gets the server, 1 it does not, 2 invalid usage.

    \b
    Example:
      holdfast servers explain github
    """
    loaded, resolution = _plan(options)
    entries = [entry for entry in loaded.entries if entry.name == name]
    spec = next((server for server in resolution.servers if server.name == name), None)
    refusals = [refusal for refusal in resolution.refusals if refusal.server == name]
    if not entries and spec is None and not refusals:
        raise HoldfastError(codes.UNKNOWN_SERVER, f"There is no server {name!r} here.")
    warnings = [mask_listing(warning.text) for warning in resolution.warnings if warning.server == name]
    if as_json:
        document = {
            "name": name,
            "available": spec is not None,
            "entries": [_entry_to_json(entry) for entry in entries],
            "refusals": [
                {"stage": refusal.stage, "reason": mask_listing(refusal.reason)} for refusal in refusals
            ],
            "warnings": warnings,
        }
        print_json(document)
    else:
        for entry in entries:
            print_wrapped(f"{name} is configured in {entry.origin} ({entry.source}).")
            for line in describe_entry(summarize(entry)):
                print_wrapped(f"  {line}")
        if spec is not None:
            print_line(f"A session here gets {name}: {_confinement(spec)}.")
        for refusal in refusals:
            print_line(f"Refused at {refusal.stage}: {mask_listing(refusal.reason)}")
        for warning in warnings:
            print_line(f"Warning: {warning}")
    if spec is None:
        raise click.exceptions.Exit(1)


def _plan(options: SessionOptions) -> tuple[LoadedEntries, Resolution]:
    async def work(host: Host) -> tuple[LoadedEntries, Resolution]:
        return await host.plan(options.to_open_options())

    return run_with_host(work)


def _target(server: ServerSpec, loaded: LoadedEntries) -> str:
    """Return the server's command or URL as its entry has it, without expanding variables."""
    if isinstance(server.transport, InProcess):
        return "(built in)"
    entries = (entry for entry in loaded.entries if entry.name == server.name)
    summary = next((summarize(entry) for entry in entries if entry.origin == server.origin), None)
    return (" ".join(summary.command) or ascii_host(summary.url)) if summary is not None else ""


def _confinement(server: ServerSpec) -> str:
    if server.confinement is None:
        match server.transport:
            case Stdio():
                return "direct"
            case InProcess():
                return "built in, limited to the session's folders"
            case Http() | Sse():
                return "remote"
    network = ", ".join(server.confinement.network)
    return f"confined, network: {network or 'none'}"


def _to_json(loaded: LoadedEntries, resolution: Resolution) -> dict[str, Any]:
    return {
        "servers": [
            {
                "name": server.name,
                "source": server.source,
                "origin": server.origin,
                "target": _target(server, loaded),
                "lifetime": server.lifetime,
                "confined": server.confinement is not None,
            }
            for server in resolution.servers
        ],
        "refusals": [
            {"server": refusal.server, "stage": refusal.stage, "reason": mask_listing(refusal.reason)}
            for refusal in resolution.refusals
        ],
        "warnings": [
            {
                "server": warning.server,
                "folder": warning.folder,
                "stage": warning.stage,
                "text": mask_listing(warning.text),
            }
            for warning in resolution.warnings
        ],
    }


def _entry_to_json(entry: ServerEntry) -> dict[str, Any]:
    summary = summarize(entry)
    return {
        "source": entry.source,
        "origin": entry.origin,
        "command": list(summary.command),
        "url": summary.url,
        "env": list(summary.env),
        "headers": list(summary.headers),
        "uses": list(summary.host_variables),
        "digest": entry.digest,
    }
