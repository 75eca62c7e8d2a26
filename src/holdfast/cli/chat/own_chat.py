"""A chat in a session of its own: a new one, or one that it resumes."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from holdfast.cli.chat.banner import print_banner, print_usage
from holdfast.cli.chat.chat import Chat
from holdfast.cli.servers.review_server import Decision, has_undecided_servers, review_servers
from holdfast.host.describe_session import Description, describe_session
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.permission import DoorKind, Mode
from holdfast.session.attachment import Attachment
from holdfast.session.session import Session
from holdfast.session.subscription import Subscription
from holdfast.settings import Settings
from holdfast.store.types import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """How to start a chat: the settings, and the session to open or resume."""

    settings: Settings
    open_options: OpenOptions
    mode: Mode | None = None
    """The mode that the user chose with `--mode`."""
    resume: SessionId | None = None
    """The session to resume; None to open a new one."""
    title: str = ""
    """The title of the resumed session."""
    stored_roots: tuple[str, ...] = ()
    """The additional folders that the resumed session had. The user has to grant them again with `--also`."""
    lease: Lease | None = None
    """Set if another process has the session open: then the chat attaches to it."""


class OwnChat(Chat):
    """Opens or resumes a session, and closes it at the end."""

    def __init__(self, options: ChatOptions, on_end: Callable[[], None] = lambda: None) -> None:
        super().__init__(options.settings, on_end)
        self._options = options

    async def _run_session(self) -> None:
        options = self._options
        open_options = replace(options.open_options, door=self._door)
        async with Host(settings=options.settings) as host:
            await self._review_project(host, open_options)
            session = await (
                host.reopen(options.resume, open_options) if options.resume else host.open(open_options)
            )
            try:
                async with (
                    _connect_servers(session, options.settings.links.wait_seconds),
                    self._show_session(session) as shown,
                ):
                    await self._run_prompts(shown, session.record.mask)
            finally:
                _exit_at_next_interrupt()
                self._on_end()
                await session.close()
        if self._has_typed:
            self._printer.new_line()
            self._printer.print()
            self._printer.print("To resume this session: holdfast chat --resume", "dim")

    async def _review_project(self, host: Host, open_options: OpenOptions) -> None:
        """Ask about servers of the project that need a decision, if the user is at a terminal."""
        if not self._is_interactive or not await has_undecided_servers(host, open_options):
            return
        self._open_terminal()
        self._printer.print("This folder has servers that you have not decided about:", "bold")

        async def ask(question: str) -> str:
            return await self._ask(f"{question} ", "") or ""

        await review_servers(host, open_options, Decision(ask=ask), again=False)
        self._printer.print()

    @asynccontextmanager
    async def _show_session(self, session: Session) -> AsyncIterator["_OwnSession"]:
        """Print the events so far if the session is resumed, then the banner; during the block, print each new event."""
        printer, options = self._printer, self._options
        if options.mode not in (None, session.permission.mode):
            await session.permission.change_mode(options.mode, DoorKind.CHAT)
        attachment = session.attach(self._door)
        last_seq = session.record.events.last
        events = attachment.subscribe(0 if options.resume else last_seq)
        showing = asyncio.create_task(self._show_events(events))
        try:
            await events.wait_handled(last_seq)
            printer.new_line()
            print_banner(
                printer,
                session,
                mode=session.permission.mode,
                title=options.title,
                stored_roots=options.stored_roots,
            )
            if not options.resume:
                print_usage(printer)
            yield _OwnSession(session, attachment, events)
        finally:
            showing.cancel()
            await asyncio.wait([showing])

    async def _show_events(self, events: Subscription) -> None:
        try:
            async for stored in events:
                await self._show_event(stored)
        except HoldfastError as error:
            self._print_failure(
                HoldfastError(
                    error.code,
                    f"The rest of this session cannot be shown: its events could not be read. {error.message}",
                    hint="Leave with /quit. To continue the session later: holdfast chat --resume",
                )
            )
        finally:
            events.close()


class _OwnSession:
    """The session of this process, as the chat uses it."""

    def __init__(self, session: Session, attachment: Attachment, events: Subscription) -> None:
        self._session = session
        self._attachment = attachment
        self._events = events

    async def prompt(self, text: str) -> None:
        try:
            turn = await self._attachment.prompt([{"type": "text", "text": text}])
        except HoldfastError:
            await self._events.wait_handled(self._session.record.events.last)
            raise
        await self._events.wait_handled(turn.last_seq)

    def cancel(self) -> None:
        self._attachment.cancel()

    def describe(self) -> Description:
        return describe_session(self._session)


@asynccontextmanager
async def _connect_servers(session: Session, seconds: float) -> AsyncIterator[None]:
    """Wait up to `seconds` for the session's servers, then run the block. Slower servers keep connecting during the block."""
    connecting = asyncio.create_task(session.wait_ready_and_store())
    try:
        await asyncio.wait([connecting], timeout=seconds)
        yield
    finally:
        connecting.cancel()
        await asyncio.wait([connecting])


def _exit_at_next_interrupt() -> None:
    """From now on, Ctrl-C ends the process at once: the session is being closed."""
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
