"""`holdfast servers list` and `explain`: which servers a session gets, and why others are refused."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import click

from holdfast.cli.open_session import SessionOptions, run_with_host, session_options
from holdfast.cli.options import json_lines_option, json_option
from holdfast.cli.output import (
    AGENT_SERVERS_NOTE,
    NO_SERVERS,
    print_json,
    print_line,
    print_table,
    print_wrapped,
)
from holdfast.cli.servers.describe_entry import ascii_host, describe_entry, describe_grants
from holdfast.cli.servers.review_server import describe_as_in_review
from holdfast.cli.servers.unknown_server import unknown_server
from holdfast.host.host import Host
from holdfast.masking.likely_secrets import mask_listing
from holdfast.model.resolution import Resolution
from holdfast.model.server import Http, InProcess, ServerSpec, Source, Sse, Stdio
from holdfast.resolve.entry_summary import summarize
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.server_entry import ServerEntry


@click.command("list")
@session_options
@json_lines_option
def list_servers(options: SessionOptions, *, as_json: bool) -> None:
    """List the servers that a session here gets, and those that are refused.

    No server is started. Which servers a session gets depends on the configuration, your approvals, the workspace
    and the session's trust.

    \b
    Example:
      holdfast servers list --trust sandboxed
    """
    loaded, resolution, followed = _plan(options)
    if as_json:
        for line in _to_json(loaded, resolution, followed):
            print_json(line)
        return
    rows = [
        (server.name, server.source, _target(server, loaded), _describe_confinement(server, followed))
        for server in resolution.servers
    ]
    rows += [
        (
            refusal.server,
            *_describe_refused(refusal.server, loaded, resolution),
            f"refused: {options.add_to_commands(mask_listing(refusal.reason))}",
        )
        for refusal in resolution.refusals
    ]
    if rows:
        print_table(("server", "from", "command or URL", "status"), rows)
    else:
        print_line(NO_SERVERS, err=True)
    print_line(options.add_to_commands(AGENT_SERVERS_NOTE), err=True)
    for warning in resolution.warnings:
        text = options.add_to_commands(mask_listing(warning.text))
        print_line(f"{warning.subject}: {text}", err=True)


@click.command()
@click.argument("name")
@session_options
@json_option
def explain(name: str, options: SessionOptions, *, as_json: bool) -> None:
    """Show where a server is configured, what it runs and may access, and whether and why it is refused.

    Exit codes: 0 a session here gets the server, 1 it does not, 2 invalid usage.

    \b
    Example:
      holdfast servers explain github
    """
    described: dict[str, list[str]] = {}

    async def describe(host: Host, loaded: LoadedEntries) -> None:
        for entry in loaded.entries:
            if entry.name == name and entry.source is Source.PROJECT and not as_json:
                described[entry.origin] = await describe_as_in_review(host, entry)

    loaded, resolution, followed = _plan(options, describe)
    entries = [entry for entry in loaded.entries if entry.name == name]
    spec = next((server for server in resolution.servers if server.name == name), None)
    refusals = [refusal for refusal in resolution.refusals if refusal.server == name]
    if not entries and spec is None and not refusals:
        raise unknown_server(name, loaded, resolution)
    warnings = [mask_listing(warning.text) for warning in resolution.warnings if warning.server == name]
    if as_json:
        document = {
            "name": name,
            "available": spec is not None,
            "follows_edits": spec is not None and spec.digest in followed,
            **_confinement_to_json(spec),
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
            for line in described.get(entry.origin) or describe_entry(summarize(entry)):
                print_wrapped(f"  {line}")
        if spec is not None:
            print_line(f"A session here gets {name}: {_describe_confinement(spec, followed)}.")
        for refusal in refusals:
            reason = options.add_to_commands(mask_listing(refusal.reason))
            print_line(f"Refused: {reason}")
        for warning in warnings:
            print_line(f"Warning: {options.add_to_commands(warning)}")
    if spec is None:
        raise click.exceptions.Exit(1)


def _plan(
    options: SessionOptions, describe: Callable[[Host, LoadedEntries], Awaitable[None]] | None = None
) -> tuple[LoadedEntries, Resolution, frozenset[str]]:
    """The entries, the servers that a session gets, and the digests of the entries for which later edits of the program are approved.

    `describe` is called while the host is open.
    """

    async def work(host: Host) -> tuple[LoadedEntries, Resolution, frozenset[str]]:
        loaded, resolution = await host.plan(options.to_open_options())
        if describe is not None:
            await describe(host, loaded)
        return loaded, resolution, await host.approvals.entries_with_followed_edits()

    return run_with_host(work)


def _target(server: ServerSpec, loaded: LoadedEntries) -> str:
    """The server's command or URL as its entry has it, with `${NAME}` references."""
    if isinstance(server.transport, InProcess):
        return "(built in)"
    entries = (entry for entry in loaded.entries if entry.name == server.name)
    return next((_entry_target(entry) for entry in entries if entry.origin == server.origin), "")


def _describe_refused(name: str, loaded: LoadedEntries, resolution: Resolution) -> tuple[str, str]:
    """The source of a refused server, and its command or URL. Both are empty if no entry or several entries may be meant."""
    available = {(server.name, server.origin) for server in resolution.servers}
    entries = [
        entry
        for entry in loaded.entries
        if entry.name == name and (entry.name, entry.origin) not in available
    ]
    return (entries[0].source, _entry_target(entries[0])) if len(entries) == 1 else ("", "")


def _entry_target(entry: ServerEntry) -> str:
    summary = summarize(entry)
    return " ".join(summary.command) or ascii_host(summary.url)


def _describe_confinement(server: ServerSpec, followed: frozenset[str]) -> str:
    if server.confinement is None:
        match server.transport:
            case Stdio():
                return "direct, follows your edits" if server.digest in followed else "direct"
            case InProcess():
                return "built in, limited to the session's folders"
            case Http() | Sse():
                return "remote"
    confinement = server.confinement
    return f"confined, {describe_grants(confinement.network, confinement.readable, confinement.writable)}"


def _confinement_to_json(server: ServerSpec | None) -> dict[str, Any]:
    confinement = server.confinement if server is not None else None
    return {
        "confined": confinement is not None,
        "network": list(confinement.network) if confinement is not None else [],
        "readable": list(confinement.readable) if confinement is not None else [],
        "writable": list(confinement.writable) if confinement is not None else [],
    }


def _to_json(
    loaded: LoadedEntries, resolution: Resolution, followed: frozenset[str]
) -> Iterator[dict[str, Any]]:
    """An object for each server, each refusal and each warning. `state` says which it is."""
    for server in resolution.servers:
        yield {
            "state": "available",
            "server": server.name,
            "source": server.source,
            "origin": server.origin,
            "target": _target(server, loaded),
            "lifetime": server.lifetime,
            **_confinement_to_json(server),
            "follows_edits": server.digest in followed,
        }
    for refusal in resolution.refusals:
        source, target = _describe_refused(refusal.server, loaded, resolution)
        yield {
            "state": "refused",
            "server": refusal.server,
            "source": source,
            "target": target,
            "stage": refusal.stage,
            "reason": mask_listing(refusal.reason),
        }
    for warning in resolution.warnings:
        yield {
            "state": "warning",
            "server": warning.server,
            "folder": warning.folder,
            "stage": warning.stage,
            "text": mask_listing(warning.text),
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
