"""`holdfast servers add`, `remove` and `edit`."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from holdfast.cli.output import print_line
from holdfast.cli.servers.servers_file import (
    check_is_plain_json,
    choose_file,
    read_servers_file,
    write_servers_file,
)
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.plural import count
from holdfast.model.resolution import Resolution
from holdfast.model.search_path import absolute_search_path
from holdfast.model.server import Source
from holdfast.resolve.load import LoadedEntries, load_file
from holdfast.resolve.server_entry import ServerEntry
from holdfast.resolve.validate import validate

_project_option = click.option(
    "--project", is_flag=True, help="Use the .mcp.json of the current folder, not your own list."
)


def _entry_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options that describe a server. The command gets them as its parameter `entry`."""

    @wraps(command)
    def with_entry(**given: Any) -> None:
        taken = {name: given.pop(name) for name in ("command", "url", "env", "header", "cwd", "unpinned")}
        command(entry=_make_entry(**taken), **given)

    for decorate in (
        click.option(
            "--unpinned",
            is_flag=True,
            help="For a server that you are writing: its tools need no approval when they change.",
        ),
        click.option("--cwd", help="The folder in which the command starts."),
        click.option(
            "--header", multiple=True, metavar="NAME:VALUE", help="A header for the URL. Can be repeated."
        ),
        click.option(
            "--env", multiple=True, metavar="NAME=VALUE", help="A variable for the command. Can be repeated."
        ),
        click.option("--url", help="The URL of a remote server, instead of a command."),
        click.argument("command", nargs=-1, type=click.UNPROCESSED),
    ):
        with_entry = decorate(with_entry)
    return with_entry


def _make_entry(
    *,
    command: tuple[str, ...],
    url: str | None,
    env: tuple[str, ...],
    header: tuple[str, ...],
    cwd: str | None,
    unpinned: bool,
) -> JsonObject:
    if not url and len(command) == 1 and command[0].lower().startswith(("http://", "https://")):
        return _make_entry(command=(), url=command[0], env=env, header=header, cwd=cwd, unpinned=unpinned)
    if bool(command) == bool(url):
        raise click.UsageError("Give a command after `--`, or an address with --url.")
    if url and (env or cwd):
        raise click.UsageError("--env and --cwd cannot be combined with --url.")
    if command and header:
        raise click.UsageError("--header needs --url.")
    entry: JsonObject = {"url": url} if url else {"command": command[0]}
    if len(command) > 1:
        entry["args"] = list(command[1:])
    if env:
        entry["env"] = dict(_parse_pair(each, "=", "--env") for each in env)
    if header:
        entry["headers"] = dict(_parse_pair(each, ":", "--header") for each in header)
    if cwd:
        entry["cwd"] = cwd
    if unpinned:
        entry["pin_tools"] = False
    return entry


@click.command()
@click.argument("name")
@_entry_options
@click.option("--replace", is_flag=True, help="Replace an entry of the same name.")
@_project_option
def add(*, name: str, entry: JsonObject, replace: bool, project: bool) -> None:
    """Add a server to your list.

    Your list is the file in the setting servers.user_file. New direct sessions get the servers in it, and so do open
    sessions of the MCP clients of `holdfast up`. Write the server's command line after `--`, or give its address with --url.
    When the server starts, `${NAME}` in a value is replaced with the environment variable, so that the file need not
    contain secrets.

    With --project, the server is added to the .mcp.json of the current folder. Everyone who uses it there has to approve it.

    \b
    Examples:
      holdfast servers add notes -- python /home/me/notes.py
      holdfast servers add notes --unpinned -- python /home/me/notes.py
      holdfast servers add docs --url https://mcp.example.org/ --header 'Authorization: Bearer ${DOCS_TOKEN}'
      holdfast servers add everything -- npx -y @modelcontextprotocol/server-everything
    """
    file = choose_file(project=project)
    source = Source.PROJECT if project else Source.USER
    checked = _check(ServerEntry(name=name, source=source, origin=str(file), value=entry))
    for refusal in checked.refusals:
        raise click.UsageError(f"{name}: {refusal.reason}")
    content, servers = read_servers_file(file)
    check_is_plain_json(file, is_project=project)
    if name in servers and not replace:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{file} already has a server {name!r}.",
            hint="Choose another name, or add --replace.",
        )
    servers[name] = entry
    _write(file, content, project=project)
    print_line(f"Added {name} to {file}.")
    for warning in checked.warnings:
        print_line(f"Warning: {warning.text}", err=True)
    if problem := _missing_program_warning(entry) or ("" if project else _relative_path_warning(entry)):
        print_line(f"Warning: {problem}", err=True)
    next_step = ["holdfast", "servers", "approve"] if project else ["holdfast", "tools", name]
    print_line(f"Next: {shlex.join(next_step)}", err=True)


@click.command()
@click.argument("name")
@_project_option
def remove(*, name: str, project: bool) -> None:
    """Remove a server from your list.

    With --project, from the .mcp.json of the current folder.

    \b
    Example:
      holdfast servers remove notes
    """
    file = choose_file(project=project)
    content, servers = read_servers_file(file)
    if name not in servers:
        listed = f"It has: {', '.join(servers)}." if servers else "It has none."
        raise HoldfastError(codes.UNKNOWN_SERVER, f"{file} has no server {name[:80]!r}.", hint=listed)
    check_is_plain_json(file, is_project=project)
    del servers[name]
    _write(file, content, project=project)
    print_line(f"Removed {name} from {file}.")


@click.command()
@_project_option
def edit(*, project: bool) -> None:
    """Open your list of servers in an editor.

    The editor is the one in $VISUAL or $EDITOR. Afterwards, the list is checked.

    \b
    Example:
      holdfast servers edit
    """
    file = choose_file(project=project)
    if not file.exists():
        content, _ = read_servers_file(file)
        _write(file, content, project=project)
    click.edit(filename=str(file))
    source = Source.PROJECT if project else Source.USER
    checked = validate(load_file(source, file))
    for refusal in checked.refusals:
        print_line(f"{refusal.server or file}: {refusal.reason}", err=True)
    for warning in checked.warnings:
        print_line(f"Warning: {warning.subject}: {warning.text}", err=True)
    print_line(f"{file} has {count(len(checked.servers), 'valid server')}.")
    sys.exit(1 if checked.refusals else 0)


def _missing_program_warning(entry: JsonObject) -> str:
    """A warning that the command of an entry cannot be started; empty if it can, or if that depends on the session."""
    command, cwd = entry.get("command"), entry.get("cwd")
    if not isinstance(command, str) or "$" in command or cwd:
        return ""
    if "/" not in command:
        if not shutil.which(command, path=absolute_search_path(os.environ.get("PATH", ""))):
            return f"There is no program {command!r} on your PATH. Correct the name, or install it."
        return ""
    if not command.startswith("/"):
        return ""  # relative to the folder of the session
    path = Path(command)
    if not path.exists():
        return f"There is no file {command!r}. Correct the path."
    return "" if os.access(path, os.X_OK) else f"{command!r} cannot be run: it is not executable."


def _relative_path_warning(entry: JsonObject) -> str:
    """A warning that only sessions in the current folder will find a file of the entry; empty if there is no such file."""
    command, arguments = entry.get("command"), entry.get("args", [])
    if not isinstance(command, str) or not isinstance(arguments, list) or entry.get("cwd"):
        return ""
    words = [command] if "/" in command else []  # a word without a slash is a program on the PATH
    words += [word for word in arguments if isinstance(word, str) and Path(word).suffix]
    found = next((word for word in words if not Path(word).is_absolute() and Path(word).is_file()), None)
    if found is None:
        return ""
    return (
        f"Only sessions in this folder find {found!r}. For sessions in other folders, give the whole path: "
        f"{str(Path.cwd() / found)!r}."
    )


def _check(entry: ServerEntry) -> Resolution:
    from holdfast import settings
    from holdfast.builtin.servers import builtin_servers

    reserved = [builtin.spec.name for builtin in builtin_servers(settings.load())]
    return validate(LoadedEntries(entries=(entry,)), reserved_names=reserved)


def _write(file: Path, content: JsonObject, *, project: bool) -> None:
    write_servers_file(file, content, mode=0o644 if project else 0o600, is_project=project)


def _parse_pair(text: str, separator: str, option: str) -> tuple[str, Json]:
    """The name and the value in the text of an option such as `--env NAME=VALUE`."""
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise click.UsageError(f"{option} needs NAME{separator}VALUE, not {text[:80]!r}.")
    return name.strip(), value.strip() if separator == ":" else value
