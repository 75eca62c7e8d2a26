"""`holdfast servers import`: take over what people wrote down for other programs."""

import json
import os
import tempfile
from pathlib import Path

import click

from holdfast import settings
from holdfast.cli import table
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.resolve.importers import PROGRAMS, Foreign, Program, read_foreign
from holdfast.resolve.load import read_json
from holdfast.wire.strict import Unreadable


@click.command("import")
@click.option("--from", "program", type=click.Choice(list(PROGRAMS)), required=True, help="Whose list it is.")
@click.option(
    "--file", type=click.Path(path_type=Path, dir_okay=False), help="The list, where it is elsewhere."
)
@click.option("--dry-run", is_flag=True, help="Show what would be taken over, and change nothing.")
def import_servers(program: str, file: Path | None, *, dry_run: bool) -> None:
    """Take over another program's servers.

    They are added to your own list; a name that is there already stays as it is. The other program's list is
    only read.
    """
    found = _read(PROGRAMS[program], file)
    target = settings.load().servers.user_file
    ours = _ours(target)
    servers = ours.setdefault("mcpServers", {})
    if not isinstance(servers, dict):
        raise HoldfastError(codes.BAD_ARGUMENT, f'{target} has no object "mcpServers". Correct it first.')
    rows: list[tuple[str, str, str]] = []
    for server in found:
        is_new = server.name not in servers
        if is_new:
            servers[server.name] = server.entry
        status = ("would be added" if dry_run else "added") if is_new else "there already, left as it is"
        rows.append((server.name, status, "; ".join(server.remarks)))
    table.show(("server", "status", "remarks"), rows)
    if not dry_run and any(status == "added" for _, status, _ in rows):
        _write(target, ours)
        click.echo(f"Written to {target}.")


def _read(program: Program, file: Path | None) -> tuple[Foreign, ...]:
    files = (
        (file,) if file is not None else tuple(path for path in program.files(Path.home()) if path.is_file())
    )
    if not files:
        places = " or ".join(str(path) for path in program.files(Path.home()))
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"There is no list of {program.title} at {places}. Name it with --file."
        )
    found: dict[str, Foreign] = {}
    for path in files:
        try:
            text = path.read_bytes()
        except OSError as error:
            raise HoldfastError(codes.BAD_ARGUMENT, f"{path} cannot be read: {error.strerror}.") from None
        for server in read_foreign(text, program, path):
            found.setdefault(server.name, server)
    if not found:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"There are no servers in {', '.join(map(str, files))}. Is it the right file?"
        )
    return tuple(found.values())


def _ours(target: Path) -> JsonObject:
    try:
        content = read_json(target.read_bytes())
    except FileNotFoundError:
        return {}
    except Unreadable as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{target} cannot be read: {error}. Correct it first."
        ) from None
    if not isinstance(content, dict):
        raise HoldfastError(codes.BAD_ARGUMENT, f"{target} holds no JSON object. Correct it first.")
    return content


def _write(target: Path, content: JsonObject) -> None:
    """Replace the list whole; it may hold secrets, so it is the owner's alone."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".mcp-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(target)
