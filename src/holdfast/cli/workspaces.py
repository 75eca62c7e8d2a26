"""`holdfast workspaces`: register folders, and set what their sessions may use."""

import os
import shlex
from dataclasses import asdict
from pathlib import Path

import click

from holdfast import settings
from holdfast.cli.click_groups import FullHelpGroup
from holdfast.cli.options import json_lines_option, json_option
from holdfast.cli.output import confirm_or_abort, print_json, print_line, print_table
from holdfast.cli.unbound_folder import raise_if_unbound
from holdfast.model import codes
from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.errors import HoldfastError
from holdfast.model.tool_pattern import ToolPattern
from holdfast.model.trust import Trust, parse_trust
from holdfast.model.workspace import Workspace
from holdfast.workspaces import WORKSPACES_FOLDER, InvalidWorkspace, Registry


@click.group(cls=FullHelpGroup)
def workspaces() -> None:
    """Register folders, and set what their sessions may use.

    \b
    Examples:
      holdfast workspaces add .                     sandboxed, named after the folder
      holdfast workspaces add ~/blog --trust direct --servers files,git
      holdfast workspaces show blog
    """


@workspaces.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", help="The name of the workspace. Default: the folder's name.")
@click.option("--trust", help="direct or sandboxed. Default: sandboxed.")
@click.option("--servers", help="all, none, or server names separated by commas. Default: all.")
@click.option("--tools", help="all, none, or tool names separated by commas. Default: all.")
@json_option
def add(
    path: Path, name: str | None, trust: str | None, servers: str | None, tools: str | None, *, as_json: bool
) -> None:
    """Register a folder as a workspace; the folder itself is not changed.

    \b
    Example:
      holdfast workspaces add ~/blog --trust direct --servers files,git
    """
    registry = _registry()
    added = registry.add(
        path.expanduser().absolute(),
        name,
        trust=Trust.SANDBOXED if trust is None else parse_trust(trust),
        servers=_parse_allowlist(servers),
        tools=_parse_allowlist(tools),
    )
    if as_json:
        print_json(_to_json(added))
    else:
        print_line(f"Added {added.slug!r}: {added.path}, {added.trust.value}.")
        print_line(f"To change more settings, edit {registry.file_of(added.slug)}")
        given = os.path.abspath(path.expanduser())  # noqa: PTH100 - without following links
        if os.path.islink(given):  # noqa: PTH114 - not a path object
            print_line(
                f"{given} is a link; the workspace is the folder that it leads to now. To follow the link at each use, write"
                f" its path as `path` in that file."
            )
        if os.path.lexists(f"{added.path}/.mcp.json"):
            command = shlex.join(["holdfast", "servers", "approve", "--cwd", str(added.path)])
            print_line(f"To decide about the servers in its .mcp.json: {command}")


@workspaces.command("list")
@json_lines_option
def list_(*, as_json: bool) -> None:
    """List the workspaces, with their folder and trust.

    \b
    Example:
      holdfast workspaces list
    """
    registry = _registry()
    found, problems = registry.list(), registry.invalid
    if as_json:
        for workspace in found:
            print_json(_to_json(workspace))
        for problem in problems:
            print_json({"file": str(problem.file), "problem": problem.describe()})
        return
    if found:
        print_table(
            ("workspace", "trust", "servers", "tools", "folder"), [_row(workspace) for workspace in found]
        )
    elif not problems:
        print_line("There are no workspaces yet. Register a folder: holdfast workspaces add PATH")
    for problem in problems:
        _print_problem(problem)


@workspaces.command()
@click.argument("workspace")
@json_option
def show(workspace: str, *, as_json: bool) -> None:
    """Show one workspace, by its name, its slug or a path inside it.

    \b
    Example:
      holdfast workspaces show blog
    """
    registry, name_or_path = _registry(), _resolve_path(workspace)
    found = registry.find(name_or_path)
    if found is None and name_or_path.startswith("/"):
        raise_if_unbound(name_or_path)
        raise HoldfastError(
            codes.UNKNOWN_WORKSPACE,
            f"{name_or_path} does not belong to a workspace.",
            hint=f"Register it: {shlex.join(['holdfast', 'workspaces', 'add', name_or_path])}",
        )
    if found is None:
        raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {workspace!r}.")
    if as_json:
        print_json({**_to_json(found), "bound": registry.bound_folders(found.slug)})
        return
    rows = [
        ("workspace", found.slug),
        ("name", found.name),
        ("folder", _folder(found)),
        *(("bound folder", folder) for folder in registry.bound_folders(found.slug)),
        ("trust", found.trust.value),
        ("servers", _format_allowlist(found.servers)),
        ("tools", _format_allowlist(found.tools)),
        ("permission.deny", _format_patterns(found.permission.deny)),
        ("permission.ask", _format_patterns(found.permission.ask)),
        ("permission.max_mode", found.permission.max_mode),
        ("model", found.model or "(default)"),
        *((f"sandbox.{name}", str(value)) for name, value in asdict(found.quota).items()),
        *((f"env.{server}", ", ".join(variables)) for server, variables in found.env.items()),
        ("file", str(registry.file_of(found.slug))),
    ]
    print_table(("key", "value"), rows)


@workspaces.command()
@click.argument("slug")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def remove(slug: str, *, yes: bool) -> None:
    """Remove a workspace; its folder is not changed.

    Its tasks and sessions are kept, and no other folder gets its slug. If you register the same folder again, it has its
    tasks again. If you moved the folder, change `path` in the workspace's file instead.

    \b
    Example:
      holdfast workspaces remove blog
    """
    registry = _registry()
    if not registry.file_of(slug).exists():
        raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {slug!r}.")
    if not yes:
        confirm_or_abort(
            f"Remove the workspace {slug!r}? Its folder is not changed.", action="remove the workspace"
        )
    registry.remove(slug)
    print_line(
        f"Removed {slug!r}. Its folder was not changed. Its tasks reappear when you register the folder again."
    )


@workspaces.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--workspace",
    "slug",
    default="",
    help="The workspace. Default: the one that .holdfast/workspace.toml in the folder names.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def bind(folder: Path, slug: str, *, yes: bool) -> None:
    """Make a folder a part of a workspace that is in another place.

    The file `.holdfast/workspace.toml` in a folder can name the workspace (workspace = "blog"). This has no effect until
    you agree, here or at the start of a chat.

    \b
    Example:
      holdfast workspaces bind ~/blog-theme --workspace blog
    """
    from holdfast.workspaces.bindings import find_announcement_problem, read_announcement

    registry, path = _registry(), folder.expanduser().resolve()
    announced = None if slug else read_announcement(path)
    if not slug and (problem := find_announcement_problem(path)):
        raise click.UsageError(f"{problem} Correct it, or name the workspace with --workspace.")
    if not slug and announced is None:
        raise click.UsageError(
            f"{path} has no file .holdfast/workspace.toml that names a workspace. Name it with --workspace."
        )
    if announced is not None:
        path, slug = Path(announced.folder), announced.workspace
    found = registry.find(slug)
    if found is None:
        raise HoldfastError(
            codes.UNKNOWN_WORKSPACE,
            f"There is no workspace {slug!r}.",
            hint=f"Register its folder: {shlex.join(['holdfast', 'workspaces', 'add', 'PATH', '--name', slug])}",
        )
    if not yes:
        question = f"Make {path} a part of the workspace {found.slug!r} ({found.path}, {found.trust.value})?"
        confirm_or_abort(question, action="bind the folder")
    registry.bind(str(path), found.slug)
    print_line(
        f"{path} now belongs to the workspace {found.slug!r}. "
        f"To undo this: {shlex.join(['holdfast', 'workspaces', 'unbind', str(path)])}"
    )


@workspaces.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def unbind(folder: Path) -> None:
    """Undo `bind`, or forget that you declined to bind the folder.

    \b
    Example:
      holdfast workspaces unbind ~/blog-theme
    """
    path = folder.expanduser().resolve()
    slug = _registry().unbind(str(path))
    if slug:
        print_line(f"{path} no longer belongs to the workspace {slug!r}.")
    else:
        print_line(f"{path} was not bound to a workspace.")


def _registry() -> Registry:
    return Registry(settings.load().data_dir / WORKSPACES_FOLDER)


def _resolve_path(text: str) -> str:
    """Return a path as an absolute path; return a name or slug unchanged."""
    if text.startswith((".", "~")) or "/" in text:
        return str(Path(text).expanduser().resolve())
    return text


def _parse_allowlist(text: str | None) -> Allowlist:
    match text:
        case None | "all":
            return ALLOW_ALL
        case "none":
            return ALLOW_NONE
        case _:
            return Allowlist(frozenset(name.strip() for name in text.split(",") if name.strip()))


def _format_allowlist(allowlist: Allowlist) -> str:
    if allowlist.names is None:
        return "all"
    return ", ".join(sorted(allowlist.names)) or "none"


def _format_patterns(patterns: tuple[ToolPattern, ...]) -> str:
    return ", ".join(map(str, patterns)) or "none"


def _row(workspace: Workspace) -> tuple[str, ...]:
    return (
        workspace.slug,
        workspace.trust.value,
        _format_allowlist(workspace.servers),
        _format_allowlist(workspace.tools),
        _folder(workspace),
    )


def _folder(workspace: Workspace) -> str:
    return workspace.path if Path(workspace.path).is_dir() else f"{workspace.path} (missing)"


def _to_json(workspace: Workspace) -> dict[str, object]:
    """Return the workspace as JSON. The values of environment variables are left out: they may be secrets."""
    return {
        "slug": workspace.slug,
        "name": workspace.name,
        "path": workspace.path,
        "trust": workspace.trust.value,
        "servers": "all" if workspace.servers.names is None else sorted(workspace.servers.names),
        "tools": "all" if workspace.tools.names is None else sorted(workspace.tools.names),
        "permission": {
            "deny": [str(pattern) for pattern in workspace.permission.deny],
            "ask": [str(pattern) for pattern in workspace.permission.ask],
            "max_mode": workspace.permission.max_mode,
        },
        "model": workspace.model,
        "sandbox": asdict(workspace.quota),
        "env": {server: sorted(variables) for server, variables in workspace.env.items()},
    }


def _print_problem(problem: InvalidWorkspace) -> None:
    for line in problem.describe().splitlines():
        print_line(f"Problem: {problem.file}: {line}", err=True)
