"""`holdfast workspaces`: register folders, and say what a session in one may use."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from holdfast import settings
from holdfast.cli import table
from holdfast.cli.group import Group
from holdfast.model import codes
from holdfast.model.choice import ALL, NONE, Choice
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust, parse_trust
from holdfast.model.workspace import Workspace
from holdfast.workspaces import Problem, Registry

FOLDER = "workspaces"

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group(cls=Group)
def workspaces() -> None:
    """Register folders, and say what a session in one may use.

    \b
    Examples:
      holdfast workspaces add .                     a sandboxed workspace, named like the folder
      holdfast workspaces add ~/blog --trust direct --servers files,git
      holdfast workspaces show blog
    """


@workspaces.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", help="What to call it; otherwise the folder's own name.")
@click.option("--trust", help="direct or sandboxed; otherwise sandboxed.")
@click.option("--servers", help="all, none, or server names with commas between; otherwise all.")
@click.option("--tools", help="all, none, or tool names with commas between; otherwise all.")
@as_json_option
def add(
    path: Path, name: str | None, trust: str | None, servers: str | None, tools: str | None, *, as_json: bool
) -> None:
    """Register a folder as a workspace; the folder itself is not touched."""
    registry = _registry()
    added = registry.add(
        path.expanduser().absolute(),
        name,
        trust=Trust.SANDBOXED if trust is None else parse_trust(trust),
        servers=_choice(servers),
        tools=_choice(tools),
    )
    if as_json:
        click.echo(json.dumps(_for_programs(added), indent=2))
    else:
        click.echo(f"Added {added.slug!r}: {table.plain(added.path)}, {added.trust.value}.")
        click.echo(f"More can be set in {table.plain(str(registry.file_of(added.slug)))}")


@workspaces.command("list")
@as_json_option
def list_(*, as_json: bool) -> None:
    """Print every workspace, its folder and its trust."""
    registry = _registry()
    found, problems = registry.list(), registry.problems
    if as_json:
        told = {
            "workspaces": [_for_programs(workspace) for workspace in found],
            "problems": [{"file": str(problem.file), "message": problem.message} for problem in problems],
        }
        click.echo(json.dumps(told, indent=2))
        return
    if found:
        table.show(
            ("workspace", "trust", "servers", "tools", "folder"), [_row(workspace) for workspace in found]
        )
    elif not problems:
        click.echo("There are no workspaces yet. Register a folder: holdfast workspaces add PATH")
    for problem in problems:
        _tell(problem)


@workspaces.command()
@click.argument("workspace")
@as_json_option
def show(workspace: str, *, as_json: bool) -> None:
    """Print one workspace; name it by its name, its slug, or a path inside it."""
    registry = _registry()
    found = registry.find(_address(workspace))
    if found is None:
        raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {workspace!r}.")
    if as_json:
        click.echo(json.dumps(_for_programs(found), indent=2))
        return
    rows = [
        ("workspace", found.slug),
        ("name", found.name),
        ("folder", _folder(found)),
        ("trust", found.trust.value),
        ("servers", _chosen(found.servers)),
        ("tools", _chosen(found.tools)),
        ("model", found.model or "the host's"),
        *((f"sandbox.{name}", str(value)) for name, value in asdict(found.quota).items()),
        *((f"env.{server}", ", ".join(variables)) for server, variables in found.env.items()),
        ("file", str(registry.file_of(found.slug))),
    ]
    table.show(("key", "value"), rows)


@workspaces.command()
@click.argument("slug")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(slug: str, *, yes: bool) -> None:
    """Forget a workspace; its folder and all that is in it stay."""
    registry = _registry()
    if not registry.file_of(slug).exists():
        raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {slug!r}.")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("Nobody is there to ask. Add --yes to remove it all the same.")
        click.confirm(f"Forget the workspace {slug!r}? Its folder stays as it is", abort=True)
    registry.remove(slug)
    click.echo(f"Removed {slug!r}. Its folder stays as it is.")


def _registry() -> Registry:
    return Registry(settings.load().data_dir / FOLDER)


def _address(text: str) -> str:
    """What a person typed: here, unlike in a tool's argument, a path may be relative to where they are."""
    if text.startswith((".", "~")) or "/" in text:
        return str(Path(text).expanduser().resolve())
    return text


def _choice(text: str | None) -> Choice:
    match text:
        case None | "all":
            return ALL
        case "none":
            return NONE
        case _:
            return Choice(frozenset(name.strip() for name in text.split(",") if name.strip()))


def _chosen(choice: Choice) -> str:
    if choice.names is None:
        return "all"
    return ", ".join(sorted(choice.names)) or "none"


def _row(workspace: Workspace) -> tuple[str, ...]:
    return (
        workspace.slug,
        workspace.trust.value,
        _chosen(workspace.servers),
        _chosen(workspace.tools),
        _folder(workspace),
    )


def _folder(workspace: Workspace) -> str:
    return workspace.path if Path(workspace.path).is_dir() else f"{workspace.path} (missing)"


def _for_programs(workspace: Workspace) -> dict[str, object]:
    """Everything but the values of variables: they may be secrets."""
    return {
        "slug": workspace.slug,
        "name": workspace.name,
        "path": workspace.path,
        "trust": workspace.trust.value,
        "servers": "all" if workspace.servers.names is None else sorted(workspace.servers.names),
        "tools": "all" if workspace.tools.names is None else sorted(workspace.tools.names),
        "model": workspace.model,
        "sandbox": asdict(workspace.quota),
        "env": {server: sorted(variables) for server, variables in workspace.env.items()},
    }


def _tell(problem: Problem) -> None:
    for line in problem.message.splitlines():
        click.echo(f"Problem: {table.plain(f'{problem.file}: {line}')}", err=True)
