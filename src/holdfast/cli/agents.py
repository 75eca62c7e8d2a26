"""`holdfast agents`: list, show and approve the definitions of agents, and revoke an approval."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.click_groups import FullHelpGroup
from holdfast.cli.options import json_lines_option
from holdfast.cli.output import confirm_or_abort, print_for_review, print_json, print_line, print_table

if TYPE_CHECKING:
    from holdfast.host.agent_definitions import AgentFile
    from holdfast.model.json import JsonObject

_folder_option = click.option(
    "--cwd",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="The folder of the project. Default: the current folder.",
)


@click.group(cls=FullHelpGroup)
def agents() -> None:
    """List and show the definitions of agents; approve them, and revoke approvals.

    A definition is a Markdown file: NAME.md in the folder `agents` next to your settings file, or in `.holdfast/agents` of a project.

    \b
    Examples:
      holdfast agents list
      holdfast agents show reviewer
      holdfast agents approve reviewer
      holdfast agents revoke reviewer
    """


@agents.command(name="list")
@_folder_option
@json_lines_option
def list_(cwd: Path, *, as_json: bool) -> None:
    """List the agents of this folder. If a session cannot use an agent, the reason is shown.

    \b
    Example:
      holdfast agents list
    """
    from holdfast.cli.open_session import run_with_host
    from holdfast.host.host import Host

    folder = str(cwd.resolve())

    async def work(host: Host) -> None:
        found = await host.agent_definitions.list(folder)
        if as_json:
            for agent in found:
                print_json(_to_json(agent))
            return
        if not found:
            print_line(
                "No agents are defined. To define one, write NAME.md in the folder `agents` next to your settings file, or in"
                " .holdfast/agents of the project."
            )
        else:
            print_table(("agent", "from", "description"), [_row(agent) for agent in found])

    run_with_host(work)


@agents.command()
@click.argument("name")
@_folder_option
def show(name: str, cwd: Path) -> None:
    """Print the file of an agent, and whether it can be used.

    \b
    Example:
      holdfast agents show reviewer
    """
    from holdfast.cli.open_session import run_with_host
    from holdfast.host.host import Host

    folder = str(cwd.resolve())

    async def work(host: Host) -> None:
        found = await host.agent_definitions.find(name, folder)
        if found is None:
            await host.agent_definitions.require(name, folder)  # raises UNKNOWN_AGENT
            return
        print_line(f"{found.origin}: {found.problem or 'can be used'}")
        print_for_review(_file_lines(found))

    run_with_host(work)


@agents.command()
@click.argument("name")
@_folder_option
@click.option("--yes", is_flag=True, help="Approve without asking.")
def approve(name: str, cwd: Path, *, yes: bool) -> None:
    """Approve a project's agent as its file is now. If the file changes, the agent has to be approved again.

    \b
    Example:
      holdfast agents approve reviewer
    """
    from holdfast.cli.open_session import run_with_host
    from holdfast.cli.user_name import user_name
    from holdfast.host.host import Host

    folder = str(cwd.resolve())
    start = ["holdfast", "chat", "--agent", name]
    if folder != str(Path().resolve()):
        start += ["--cwd", folder]

    async def work(host: Host) -> None:
        found = await host.agent_definitions.find(name, folder)
        if found is None or not found.is_project or found.is_approved:
            await host.agent_definitions.require(name, folder)  # raises if the agent cannot be used
            print_line(f"{name} needs no approval: it can already be used.")
            return
        print_for_review([found.origin, *_file_lines(found)])
        if not yes:
            confirm_or_abort("Approve this agent?", action="approve")
        await host.agent_definitions.approve(found, by=user_name())
        approved = await host.agent_definitions.find(name, folder)
        if approved is not None and approved.problem:
            print_line(f"Approved, but it cannot be used: {approved.problem}")
            return
        print_line(f"Approved. Start it with: {shlex.join(start)}")

    run_with_host(work)


@agents.command()
@click.argument("name")
@click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    default=Path(),
    help="The folder of the project, even if it no longer exists. Default: the current folder.",
)
def revoke(name: str, cwd: Path) -> None:
    """Revoke the approval of a project's agent, or of the project's instructions (AGENTS.md).

    Open sessions ask about AGENTS.md again before their next turn. `holdfast servers approvals` lists all approvals.

    \b
    Examples:
      holdfast agents revoke reviewer
      holdfast agents revoke AGENTS.md
    """
    from holdfast.audit.audit import Audit
    from holdfast.cli.open_store import run_with_writable_store
    from holdfast.cli.user_name import user_name
    from holdfast.host.agent_definitions import revoke as revoke_approvals
    from holdfast.model import codes
    from holdfast.model.errors import HoldfastError
    from holdfast.store.store import Store

    folder = str(cwd.resolve())

    async def work(store: Store, audit: Audit) -> bool:
        return await revoke_approvals(store, audit, folder, name, by=user_name())

    if not run_with_writable_store(None, work):
        raise HoldfastError(
            codes.UNKNOWN_AGENT,
            f"Neither an agent nor an instructions file named {name[:80]!r} is approved in '{folder}'.",
            hint="`holdfast servers approvals` lists all approvals.",
        )
    print_line(f"Revoked: {name} in {folder}.")


def _row(found: "AgentFile") -> tuple[str, str, str]:
    about = found.definition.description if found.definition is not None else found.problem
    return found.name, "project" if found.is_project else "own", about


def _file_lines(found: "AgentFile") -> list[str]:
    return [f"  {line}" for line in found.text.splitlines()]


def _to_json(found: "AgentFile") -> "JsonObject":
    """The agent as `--json` prints it, without the text of its file."""
    definition = found.definition
    return {
        "name": found.name,
        "description": definition.description if definition is not None else "",
        "source": "project" if found.is_project else "own",
        "file": found.origin,
        "approved": found.is_approved,
        "problem": found.problem,
    }
