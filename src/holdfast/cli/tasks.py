"""`holdfast tasks`: the task list of a workspace, which the built-in server `tasks` offers to sessions."""

import asyncio
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from holdfast import settings
from holdfast.builtin.tasks.server import tasks_toolbox
from holdfast.builtin.tasks.store import Status
from holdfast.cli.click_groups import FullHelpGroup
from holdfast.cli.options import json_lines_option, json_option
from holdfast.cli.output import print_json, print_line, print_lines, print_table
from holdfast.cli.unbound_folder import raise_if_unbound
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.slug import is_slug
from holdfast.toolkit.return_type import RESERVED_MEMBERS
from holdfast.workspaces import WORKSPACES_FOLDER, Registry

_workspace_option = click.option(
    "--workspace",
    default="",
    metavar="NAME",
    help="The workspace. Default: the one that contains this folder.",
)
_status_option = click.option(
    "--status", type=click.Choice([status.value for status in Status]), help="open, started, done or dropped."
)


@click.group(cls=FullHelpGroup)
def tasks() -> None:
    """Add, list, show, change, start and finish tasks of a workspace.

    Agents and MCP clients use the same lists, with the tools of the built-in server `tasks`.

    \b
    Examples:
      holdfast tasks add "Write the first page"
      holdfast tasks list --status open
      holdfast tasks start blog-3
    """


@tasks.command()
@click.argument("title")
@click.option("--body", default="", help="Further details.")
@_workspace_option
@json_option
def add(title: str, body: str, workspace: str, *, as_json: bool) -> None:
    """Add a task.

    \b
    Example:
      holdfast tasks add "Write the first page" --body "With a picture."
    """
    arguments = {"title": title, "body": body, "workspace": workspace or _workspace_here()}
    _print_change("Added", _call("task_add", arguments), as_json=as_json)


@tasks.command("list")
@_status_option
@_workspace_option
@json_lines_option
def list_(status: str | None, workspace: str, *, as_json: bool) -> None:
    """List the tasks, oldest first.

    \b
    Example:
      holdfast tasks list --status open
    """
    arguments: dict[str, Any] = {"workspace": workspace or _workspace_here()}
    if status is not None:
        arguments["status"] = status
    found: list[dict[str, Any]] = []
    while True:
        page = _call("task_list", arguments)
        found += page["items"]
        if "next_id" not in page:
            break
        arguments["first_id"] = page["next_id"]
    if as_json:
        for task in found:
            print_json(task)
    elif found:
        print_table(
            ("task", "status", "title"), [(task["id"], task["status"], task["title"]) for task in found]
        )
    else:
        print_line(
            f"There are no tasks with the status {status}."
            if status
            else "There are no tasks yet. Add one: holdfast tasks add TITLE"
        )


@tasks.command()
@click.argument("task_id", metavar="ID")
@json_option
def show(task_id: str, *, as_json: bool) -> None:
    """Show one task.

    \b
    Example:
      holdfast tasks show blog-3
    """
    task = _call("task_show", _id_and_workspace(task_id))
    if as_json:
        print_json(task)
        return
    print_line(f"{task['id']}: {task['title']}")
    print_line(f"{task['status']}, added {task['created_at']}, changed {task['updated_at']}")
    if task["created_by"]:
        kind = "the session " if task["created_by"].startswith("sess_") else ""
        print_line(f"added by {kind}{task['created_by']}")
    if task["body"]:
        print_line()
        print_lines(task["body"])


@tasks.command()
@click.argument("task_id", metavar="ID")
@click.option("--title", help="What to do, in one line.")
@click.option("--body", help="Further details.")
@_status_option
@json_option
def update(task_id: str, title: str | None, body: str | None, status: str | None, *, as_json: bool) -> None:
    """Change a task's title, body or status.

    \b
    Example:
      holdfast tasks update blog-3 --status dropped
    """
    changes = {"title": title, "body": body, "status": status}
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise click.UsageError("Say what to change: --title, --body or --status.")
    _print_change("Changed", _call("task_update", {**_id_and_workspace(task_id), **given}), as_json=as_json)


@tasks.command()
@click.argument("task_id", metavar="ID")
@json_option
def start(task_id: str, *, as_json: bool) -> None:
    """Mark a task as started.

    \b
    Example:
      holdfast tasks start blog-3
    """
    _print_change("Started", _call("task_start", _id_and_workspace(task_id)), as_json=as_json)


@tasks.command()
@click.argument("task_id", metavar="ID")
@json_option
def done(task_id: str, *, as_json: bool) -> None:
    """Mark a started task as done.

    \b
    Example:
      holdfast tasks done blog-3
    """
    _print_change("Finished", _call("task_done", _id_and_workspace(task_id)), as_json=as_json)


def _print_change(verb: str, task: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(task)
    else:
        print_line(f"{verb} {task['id']}: {task['title']}")


def _id_and_workspace(task_id: str) -> dict[str, str]:
    """The arguments that select a task. `blog-3` is a task of the workspace `blog`, and `3` one of this folder's workspace."""
    task_id = task_id.strip().lower()
    workspace, _, _ = task_id.rpartition("-")
    registry = _registry()
    if workspace and (not is_slug(workspace) or registry.find(workspace) is None):
        if is_slug(workspace) and (folder := registry.earlier_folder(workspace)):
            raise HoldfastError(
                codes.UNKNOWN_WORKSPACE,
                f"The workspace {workspace!r} was removed. Its tasks reappear when you register its folder again.",
                hint=f"To register it: {shlex.join(['holdfast', 'workspaces', 'add', folder])}",
            )
        raise HoldfastError(
            codes.UNKNOWN_WORKSPACE,
            f"There is no task {task_id!r}: there is no workspace {workspace!r}.",
        )
    hint = "Give the whole id, such as blog-3, or run the command in the folder of the task's workspace."
    return {"id": task_id, "workspace": workspace or _workspace_here(hint)}


def _workspace_here(hint: str = "") -> str:
    """The workspace of the current folder. Raise if there is none; `hint` replaces the error's hint."""
    folder = os.path.realpath(".")
    found = _registry().find(folder)
    if found is None:
        raise_if_unbound(folder)
        can_add = _registry().can_add(Path(folder))
        alternative = (
            "register this folder: holdfast workspaces add ."
            if can_add
            else "run the command in the folder of a workspace."
        )
        raise HoldfastError(
            codes.MISSING_WORKSPACE,
            f"{folder} does not belong to a workspace.",
            hint=hint or f"Name the workspace with --workspace, or {alternative}",
        )
    return found.slug


def _registry() -> Registry:
    return Registry(settings.load().data_dir / WORKSPACES_FOLDER)


def _call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(_call_in_process(tool, arguments))


async def _call_in_process(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool of the built-in server, without starting a process. Returns its data, without the envelope."""
    data_dir = settings.load().data_dir
    box = tasks_toolbox(lambda: data_dir, _registry(), created_by="holdfast tasks")
    async with box.client() as client:
        result = await client.call(tool, arguments)
    if not result.ok:
        raise _to_error(result.code, result.envelope, result.text, arguments["workspace"])
    return {name: value for name, value in result.data.items() if name not in RESERVED_MEMBERS}


def _to_error(code: str, envelope: Mapping[str, Any], text: str, workspace: str) -> HoldfastError:
    """Translate the failure of a tool into an error whose hint names commands."""
    details: dict[str, Any] = envelope.get("details") or {}
    issues: list[dict[str, str]] = details.get("issues", [])
    message = " ".join(f"{issue['field'] or 'arguments'}: {issue['message']}" for issue in issues)
    actions: list[str] = envelope.get("next_actions") or []
    if code == "UNKNOWN_TASK":
        hint = f"To list the tasks: {shlex.join(['holdfast', 'tasks', 'list', '--workspace', workspace])}"
    elif code == codes.BAD_ARGUMENT.name:
        hint = "`holdfast tasks --help` describes the commands."
    else:
        hint = " ".join(actions) or str(envelope.get("hint") or "")
    return HoldfastError(
        codes.find(code) or codes.BAD_ARGUMENT, message or str(envelope.get("error") or text), hint=hint
    )
