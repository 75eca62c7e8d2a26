"""`holdfast servers import`: import servers from the configuration of another MCP client."""

from pathlib import Path

import click

from holdfast import settings
from holdfast.cli.output import print_for_review, print_line, print_table
from holdfast.cli.servers.describe_entry import describe_entry
from holdfast.cli.servers.servers_file import check_is_plain_json, read_servers_file, write_servers_file
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Source
from holdfast.model.untrusted_file import read_untrusted_file
from holdfast.resolve.entry_summary import summarize_unmasked
from holdfast.resolve.other_clients import CLIENT_APPS, ClientApp, ImportedServer, read_servers
from holdfast.resolve.server_entry import ServerEntry

_MAX_BYTES = 16 * 1024 * 1024  # Claude Code's file also contains other data


@click.command("import")
@click.option(
    "--from",
    "app",
    type=click.Choice(list(CLIENT_APPS)),
    required=True,
    help="The MCP client to import from.",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The client's configuration file. Default: where the client keeps it.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be imported, and change nothing.")
def import_servers(app: str, file: Path | None, *, dry_run: bool) -> None:
    """Import the servers of another MCP client.

    Adds the servers to your list, the file in the setting servers.user_file: from then on they run without approval, in every
    folder. Import only servers that you trust; --dry-run shows their whole entries, including secrets. If the client has a
    server for one project only, only sessions in that project's folder get the server. A server whose program depends on the session's folder is not
    imported. Servers that are already in your list stay unchanged, and so does the other client's file.

    \b
    Example:
      holdfast servers import --from claude-desktop --dry-run
    """
    found = _read_client_files(CLIENT_APPS[app], file)
    user_file = settings.load().servers.user_file
    user_config, servers = read_servers_file(user_file)
    rows: list[tuple[str, str, str]] = []
    for server in found:
        if server.problem:
            rows.append((server.name, "not imported", server.problem))
            continue
        is_new = server.name not in servers
        if is_new:
            servers[server.name] = server.entry
        status = ("would be added" if dry_run else "added") if is_new else "already there, unchanged"
        rows.append((server.name, status, "; ".join(server.remarks)))
        if dry_run and is_new:
            print_for_review((server.name, *(f"  {line}" for line in _describe(server, user_file))))
    print_table(("server", "status", "remarks"), rows)
    if not dry_run and any(status == "added" for _, status, *_ in rows):
        check_is_plain_json(user_file)
        write_servers_file(user_file, user_config)
        print_line(f"Written to {user_file}.")


def _describe(server: ImportedServer, user_file: Path) -> list[str]:
    """What the server runs or contacts, unmasked: the author of an entry must not be able to hide parts of it."""
    entry = ServerEntry(name=server.name, source=Source.USER, origin=str(user_file), value=server.entry)
    return describe_entry(summarize_unmasked(entry))


def _read_client_files(app: ClientApp, file: Path | None) -> tuple[ImportedServer, ...]:
    files = (file,) if file is not None else tuple(path for path in app.files(Path.home()) if path.is_file())
    if not files:
        paths = " or ".join(str(path) for path in app.files(Path.home()))
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{app.title} has no configuration at {paths}.",
            hint="Give the path of its file with --file.",
        )
    found: dict[str, ImportedServer] = {}
    for path in files:
        try:
            text = read_untrusted_file(path, limit=_MAX_BYTES)
        except OSError as error:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"{path} cannot be read: {error.strerror}.",
                hint=f"It must be a regular file of at most {_MAX_BYTES} bytes that you can read.",
            ) from None
        for server in read_servers(text, app, path):
            found.setdefault(server.name, server)
    if not found:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"There are no servers in {', '.join(map(str, files))}.",
            hint="Give the path of another file with --file.",
        )
    return tuple(found.values())
