"""The options of `holdfast chat`."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.open_session import SessionOptions, session_options

if TYPE_CHECKING:
    from holdfast.cli.chat.chat import ChatOptions

LATEST = "latest"


@click.command()
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[ID]",
    help="Resume a session: the one with this id, or the latest of this folder.",
)
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "read-only"]),
    help="Ask before a tool changes something (the default), never ask, or refuse. The session keeps the mode.",
)
@click.option(
    "--also",
    multiple=True,
    metavar="FOLDER",
    help="Another folder that the session may use. Can be repeated; name it again with --resume.",
)
@session_options
def chat(options: SessionOptions, *, resume: str | None, mode: str | None, also: tuple[str, ...]) -> None:
    """Chat in a new session, at this terminal.

    The session uses the servers configured for this folder and Holdfast's own, keeps them running until you leave,
    and stores everything. Without a terminal, each line of standard input is a prompt.

    \b
    Examples:
      holdfast chat
      holdfast chat --resume
      holdfast chat --also ../library
      echo '/call files.list {}' | holdfast chat
    """
    from holdfast import settings, telemetry
    from holdfast.acp.folders import check_folder
    from holdfast.cli.chat.chat import ChatOptions
    from holdfast.cli.open_store import check_data_dir
    from holdfast.resolve.protected import protected_paths
    from holdfast.session.permission import Mode

    loaded = settings.load()
    telemetry.configure(loaded.log.level, loaded.log.format)
    check_data_dir(loaded.data_dir)
    protected = protected_paths(loaded)
    chat_options = ChatOptions(
        settings=loaded,
        opening=replace(options.to_opening(), source="chat", roots=_folders(also, protected)),
        mode=None if mode is None else Mode(mode),
    )
    if resume is not None:
        from holdfast.cli.chat.resume import resume_session

        source = click.get_current_context().get_parameter_source("cwd")
        given = source is not None and source is not click.core.ParameterSource.DEFAULT
        chat_options = asyncio.run(
            resume_session(chat_options, "" if resume == LATEST else resume, keep_folder=given)
        )
    check_folder("--cwd", str(chat_options.opening.cwd), protected)
    sys.exit(asyncio.run(_run(chat_options)))


async def _run(options: "ChatOptions") -> int:
    from holdfast.cli.chat.chat import Chat

    return await Chat(options).run()


def _folders(also: Sequence[str], protected: Sequence[str]) -> tuple[str, ...]:
    """The additional folders, checked like those that an editor grants."""
    from holdfast.acp.folders import check_folder

    return tuple(check_folder("--also", str(Path(folder).resolve()), protected) for folder in also)
