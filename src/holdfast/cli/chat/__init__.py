"""`holdfast chat`: a session at the terminal."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from holdfast.cli.opening import Where, session_options

LATEST = "latest"


@click.command()
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[ID]",
    help="Go on with a session: the one of this id, or the latest of this folder.",
)
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "read-only"]),
    help="Ask before a tool changes something (the default), never ask, or refuse. It stays with the session.",
)
@click.option(
    "--also",
    multiple=True,
    metavar="FOLDER",
    help="Another folder that the session may use; may be given several times, and again with --resume.",
)
@session_options
def chat(where: Where, *, resume: str | None, mode: str | None, also: tuple[str, ...]) -> None:
    """Talk in a session of its own, at this terminal.

    The session has the servers of this folder and Holdfast's own, keeps them until you leave, and remembers
    everything. Without a terminal, each line of standard input is a prompt.

    \b
    Examples:
      holdfast chat
      holdfast chat --resume
      holdfast chat --also ../library
      echo '/call files.list {}' | holdfast chat
    """
    from holdfast import settings, telemetry
    from holdfast.acp.folders import grantable
    from holdfast.cli.chat.chat import Chat, Plan
    from holdfast.cli.place import checked
    from holdfast.resolve.own import own_places
    from holdfast.session.permission import Mode

    loaded = settings.load()
    telemetry.configure(loaded.log.level, loaded.log.format)
    checked(loaded.data_dir)
    own = own_places(loaded)
    plan = Plan(
        settings=loaded,
        opening=replace(where.opening(), source="chat", roots=_folders(also, own)),
        mode=None if mode is None else Mode(mode),
    )
    if resume is not None:
        from holdfast.cli.chat.resume import resumed

        source = click.get_current_context().get_parameter_source("cwd")
        given = source is not None and source is not click.core.ParameterSource.DEFAULT
        plan = asyncio.run(resumed(plan, "" if resume == LATEST else resume, keep_folder=given))
    grantable("--cwd", str(plan.opening.cwd), own)
    Chat(plan).run()


def _folders(also: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
    """The session's other roots, held to what holds for an editor's."""
    from holdfast.acp.folders import grantable

    return tuple(grantable("--also", str(Path(folder).resolve()), own) for folder in also)
