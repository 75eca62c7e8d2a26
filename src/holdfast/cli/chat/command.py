"""`holdfast chat`: reads the options, then starts the chat."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.open_session import SessionOptions, session_options
from holdfast.cli.options import model_option

if TYPE_CHECKING:
    from holdfast.cli.chat.own_chat import ChatOptions

_LATEST = "latest"


@click.command()
@click.option(
    "--resume",
    is_flag=False,
    flag_value=_LATEST,
    metavar="[ID]",
    help="Resume the session with this id; without an id, the latest session of this folder that no agent created. If"
    " another process has it open, attach to it.",
)
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "read-only"]),
    help="When a tool may change something: ask you (default), allow it, or refuse it. Without this option, a resumed session keeps its mode.",
)
@click.option(
    "--also",
    multiple=True,
    metavar="FOLDER",
    help="Another folder that the session may use. Can be repeated. Give it again when you resume the session.",
)
@click.option(
    "--agent", "agent_name", default="", metavar="NAME", help="The agent that answers; see `holdfast agents`."
)
@model_option
@session_options
def chat(
    options: SessionOptions,
    *,
    resume: str | None,
    mode: str | None,
    also: tuple[str, ...],
    model: str,
    agent_name: str,
) -> None:
    """Chat at this terminal, in a new or an earlier session.

    The session has the built-in servers and those configured for this folder. They run until you leave, and
    everything is stored. Without a terminal, each line of standard input is a prompt, and the exit code is 1 if
    a prompt or a call failed.

    \b
    Examples:
      holdfast chat
      holdfast chat --resume
      holdfast chat --also ../library
      holdfast chat --agent reviewer
      holdfast chat --model anthropic:claude-sonnet-5
      echo '/call files.list {}' | holdfast chat
    """
    from holdfast import log_output, settings
    from holdfast.builtin.servers import AGENT_SERVERS
    from holdfast.cli.chat.own_chat import ChatOptions
    from holdfast.cli.exit_deadline import ExitDeadline
    from holdfast.host.data_folder import check_data_folder
    from holdfast.host.session_folders import check_folder
    from holdfast.model.descriptor_limit import raise_descriptor_limit
    from holdfast.model.permission import Mode
    from holdfast.resolve.protected_paths import paths_closed_to_tools
    from holdfast.store.suspension import suspend_between_transactions

    loaded = settings.load()
    log_output.configure(loaded.log.level, loaded.log.format)
    check_data_folder(loaded.data_dir)
    protected = paths_closed_to_tools(loaded)
    chat_options = ChatOptions(
        settings=loaded,
        open_options=replace(
            options.to_open_options(),
            opened_by="chat",
            agent_name=agent_name,
            extra_builtins=AGENT_SERVERS,
            mode=None,
            model=model,
            roots=_check_additional_folders(also, protected),
        ),
        mode=None if mode is None else Mode(mode),
    )
    if resume is not None:
        from holdfast.cli.chat.resume import load_resume_options

        source = click.get_current_context().get_parameter_source("cwd")
        is_cwd_given = source is not None and source is not click.core.ParameterSource.DEFAULT
        typed_id = None if resume == _LATEST else resume
        chat_options = asyncio.run(load_resume_options(chat_options, typed_id, keep_cwd=is_cwd_given))
    if chat_options.lease is None:
        check_folder("--cwd", str(chat_options.open_options.cwd), protected)
    raise_descriptor_limit()
    suspend_between_transactions()
    with ExitDeadline() as deadline:
        exit_code = asyncio.run(_run(chat_options, on_end=deadline.start))
    sys.exit(exit_code)


async def _run(options: "ChatOptions", on_end: Callable[[], None]) -> int:
    if options.lease is not None:
        from holdfast.cli.chat.attached_chat import AttachedChat
        from holdfast.host.remote.client import AttachRequest
        from holdfast.model.permission import DoorKind

        open_options = options.open_options
        request = AttachRequest(door=DoorKind.CHAT, trust=open_options.trust, roots=open_options.roots)
        chat = AttachedChat(
            options.settings,
            options.lease,
            options.title,
            user_id=open_options.user_id,
            request=request,
            mode=options.mode,
        )
        return await chat.run()
    from holdfast.cli.chat.own_chat import OwnChat

    return await OwnChat(options, on_end).run()


def _check_additional_folders(also: Sequence[str], protected: Sequence[str]) -> tuple[str, ...]:
    """Return the folders as absolute paths. Raises if a session may not use one of them."""
    from holdfast.host.session_folders import check_folder

    return tuple(check_folder("--also", str(Path(folder).resolve()), protected) for folder in also)
