"""`holdfast sessions attach` and `watch`: use a session that another process has open."""

import asyncio
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_lines_option

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.types import StoredEvent, StoredSession

_RECENT_EVENTS = 40  # shown without --all


@click.command()
@click.argument("session", metavar="ID")
@click.option("--all", "show_all", is_flag=True, help="Print the whole conversation first, not only its end.")
def attach(*, session: str, show_all: bool) -> None:
    """Chat in a session that another process has open, such as an editor.

    You see the end of the conversation and everything that happens from now on. Every attached editor and terminal can prompt and
    answer questions; the first answer to a question counts. Leaving does not close the session. If no process has the session open, use `holdfast chat --resume ID`.

    \b
    Example:
      holdfast sessions attach 3f2a
    """
    from holdfast import log_output, settings
    from holdfast.cli.chat.attached_chat import AttachedChat
    from holdfast.cli.find_session import short_id
    from holdfast.cli.output import print_line
    from holdfast.host.remote.client import AttachRequest
    from holdfast.model.permission import DoorKind

    loaded = settings.load()
    log_output.configure(loaded.log.level, loaded.log.format)
    stored = asyncio.run(_find_open(loaded, session))
    assert stored.lease is not None
    lease = stored.lease
    after = 0 if show_all else max(0, stored.last_seq - _RECENT_EVENTS)
    if after:
        replay = f"holdfast sessions replay {short_id(stored.context.session_id)}"
        print_line(f"Earlier parts of the conversation are not shown. To print them: {replay}", err=True)

    async def run() -> int:
        request = AttachRequest(door=DoorKind.CHAT, after=after)
        return await AttachedChat(
            loaded, lease, stored.title, user_id=stored.context.user_id, request=request
        ).run()

    sys.exit(asyncio.run(run()))


@click.command()
@click.argument("session", metavar="ID")
@click.option(
    "--after", type=click.IntRange(0), default=0, metavar="N", help="Begin after the event with this number."
)
@json_lines_option
def watch(*, session: str, after: int, as_json: bool) -> None:
    """Print what happens in a session that another process has open, until the session is closed.

    With --json, each line is an event with its number, time and kind. Press Ctrl-C to stop.

    Exit codes: 0 the session was closed; 1 no process has the session open, or its process ended without closing it; 2 invalid usage.

    \b
    Example:
      holdfast sessions watch 3f2a
    """
    from holdfast import log_output, settings

    loaded = settings.load()
    log_output.configure(loaded.log.level, loaded.log.format)
    try:
        asyncio.run(_watch(loaded, session, after, as_json=as_json))
    except KeyboardInterrupt:
        sys.exit(130)


async def _watch(settings: "Settings", typed: str, after: int, *, as_json: bool) -> None:
    from holdfast.cli.chat.door import TerminalDoor
    from holdfast.cli.event_printer import EventPrinter
    from holdfast.cli.find_session import short_id
    from holdfast.cli.output import write_json_lines
    from holdfast.cli.sessions.show import event_to_json_line
    from holdfast.host.remote.client import AttachRequest, attach_to_owner
    from holdfast.model import codes
    from holdfast.model.errors import HoldfastError
    from holdfast.model.permission import DoorKind

    stored = await _find_open(settings, typed)
    assert stored.lease is not None
    printer = EventPrinter()
    closed_pipe: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def show(events: "Sequence[StoredEvent]") -> None:
        if closed_pipe.done():
            return
        try:
            if as_json:
                write_json_lines(None, map(event_to_json_line, events))
            else:
                for event in events:
                    printer.show_stored(event)
            if printer.is_closed:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        except OSError as error:
            closed_pipe.set_exception(error)

    async with attach_to_owner(
        settings.data_dir,
        stored.lease,
        door=TerminalDoor(None),
        on_events=show,
        request=AttachRequest(door=DoorKind.CHAT, after=after, may_answer=False),
    ) as remote:
        closed = asyncio.ensure_future(remote.ended.wait())
        await asyncio.wait([closed, closed_pipe], return_when=asyncio.FIRST_COMPLETED)
        closed.cancel()
        if closed_pipe.done():
            closed_pipe.result()
    printer.new_line()
    if not remote.is_session_closed:
        raise HoldfastError(
            codes.CONNECTION_CLOSED,
            remote.end_reason,
            hint=f"To see what it has stored: holdfast sessions replay {short_id(stored.context.session_id)}",
        )


async def _find_open(settings: "Settings", typed: str) -> "StoredSession":
    """Find a session by the id that the user typed. Raise if no process has the session open."""
    from holdfast.cli.find_session import find_session, resume_command
    from holdfast.host.data_folder import DATABASE_FILE
    from holdfast.model import codes
    from holdfast.model.errors import HoldfastError
    from holdfast.store.lease import is_expired
    from holdfast.store.open_store import open_read_only

    async with open_read_only(Path(settings.data_dir) / DATABASE_FILE) as store:
        stored = await find_session(store, typed)
        if stored.lease is None or is_expired(stored.lease, store.now()):
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "No process has this session open.",
                hint=f"Open it: {resume_command(stored.context.session_id, stored.context.user_id)}",
            )
    return stored
