"""A chat in a new session, or in a session that it resumes."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from holdfast.cli.chat.banner import print_banner
from holdfast.cli.chat.chat import Chat, ChatSession
from holdfast.cli.chat.help import print_usage
from holdfast.cli.event_printer import EventPrinter
from holdfast.cli.find_session import resume_command
from holdfast.cli.servers.review_server import ReviewOptions, has_undecided_servers, review_servers
from holdfast.cli.terminal_text import replace_unprintable
from holdfast.host.describe_session import SessionDescription, describe_session
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.ids import SessionId
from holdfast.model.json import JsonObject
from holdfast.model.permission import DoorKind, Mode
from holdfast.model.real_path import real_path
from holdfast.model.resolution import Stage
from holdfast.model.workspace import Workspace
from holdfast.resolve.screen_tools import describe_hints_awaiting_approval
from holdfast.session.attachment import Attachment
from holdfast.session.session import Session
from holdfast.session.subscription import Subscription
from holdfast.session.turns import TurnResult
from holdfast.settings import Settings
from holdfast.store.types import Lease
from holdfast.wire.strict_json import decode_json
from holdfast.workspaces.bindings import Announcement
from holdfast.workspaces.registry import Registry

_MAX_SCHEMA_BYTES = 64 * 1024  # a larger schema is not decoded for a form or for completion
_MAX_PROGRESS_LENGTH = 200
_MAX_CALLS_WITH_PROGRESS = 100  # beyond that, all entries are dropped: most of their calls have ended


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
    """Set if another process has the session open. Then the chat attaches to the session."""


class OwnChat(Chat):
    """Opens or resumes a session, and closes it at the end."""

    _shows_whole_reasons = False
    """Whether the banner shows everything that a failed server wrote, not only the last line."""

    def __init__(self, options: ChatOptions, on_end: Callable[[], None] = lambda: None) -> None:
        super().__init__(options.settings, on_end)
        self._options = options
        self._host: Host | None = None
        self._open_session: Session | None = None

    async def _approve(self) -> None:
        """Ask about the project's servers. Approved servers are available when the session is opened again."""
        if self._host is None or not self._is_interactive:
            await super()._approve()
            return
        reviewed = await review_servers(
            self._host, self._options.open_options, ReviewOptions(ask=self._make_review_ask())
        )
        if reviewed.shown:
            self._printer.print(
                f"To use newly approved servers, leave with /quit and type: {self._resume_command}", "dim"
            )
        else:
            self._printer.print("No server of this project awaits approval.")
        for name in self._open_session.offered_without_hints if self._open_session is not None else ():
            self._printer.print(replace_unprintable(describe_hints_awaiting_approval(name)))
        self._printer.print(
            "To review changed tools of approved servers, in a shell: holdfast servers approve", "dim"
        )

    def _advice_after(self, text: str) -> str:
        """Suggest `/approve` after a command about a server that is not approved: its refusal suggests only a shell command."""
        refused = (
            self._open_session.refusals if self._open_session is not None and self._is_interactive else ()
        )
        words = [f"{word}." for word in text.split()]  # a word is the name of a server or of one of its tools
        is_refused = any(
            refusal.stage is Stage.ADMIT and word.startswith(f"{refusal.server}.")
            for refusal in refused
            for word in words
        )
        return "To review the project's servers in this chat, type: /approve" if is_refused else ""

    async def _run_session(self) -> None:
        options = self._options
        open_options = replace(options.open_options, door=self._door)
        async with Host(settings=options.settings) as host:
            self._host = host
            await self._review_project(host, open_options)
            session = await (
                host.reopen(options.resume, open_options) if options.resume else host.open(open_options)
            )
            self._open_session = session
            try:
                async with (
                    _connect_servers(session, options.settings.links.wait_seconds),
                    self._show_session(host, session) as chat_session,
                ):
                    await self._run_prompts(chat_session, session.record.mask)
            finally:
                _exit_at_next_interrupt()
                self._on_end()
                await session.close()
        if self._has_typed and open_options.keep:
            self._printer.new_line()
            self._printer.print()
            self._printer.print(f"To resume this session: {self._resume_command}", "dim")

    @property
    def _resume_command(self) -> str:
        """The command that resumes this session. Without an id, it would resume the latest session that has a prompt."""
        session = self._open_session
        if session is None:
            return "holdfast chat --resume"
        return resume_command(session.context.session_id, session.context.user_id)

    async def _review_project(self, host: Host, open_options: OpenOptions) -> None:
        """At a terminal, ask about the project's workspace and servers, unless the user has decided about them."""
        if not self._is_interactive:
            return
        await self._review_workspace(host, open_options)
        if not await has_undecided_servers(host, open_options):
            return
        self._open_terminal()
        self._printer.print("This folder has servers that you have not decided about:", "bold")
        review_options = ReviewOptions(ask=self._make_review_ask())
        await review_servers(host, open_options, review_options, include_declined=False)
        self._printer.print()

    async def _review_workspace(self, host: Host, open_options: OpenOptions) -> None:
        """Ask whether the folder belongs to the workspace that its `.holdfast/workspace.toml` names."""
        if open_options.workspace:
            return
        folder = str(open_options.cwd)
        found = await run_with_file_timeout(_find_announced, host.registry, folder, path=folder)
        if found is None:
            return
        announced, workspace = found
        self._open_terminal()
        self._printer.print(
            f"The file .holdfast/workspace.toml of {announced.folder} says that this folder belongs to the workspace {workspace.slug!r} ({workspace.path}, {workspace.trust.value}).",
            "bold",
        )
        answer = await self._ask("Is that right? [y]es, [n]o, or Enter to decide later: ", "") or ""
        match answer.strip().lower():
            case "y" | "yes":
                host.registry.bind(announced.folder, workspace.slug)
            case "n" | "no":
                host.registry.decline_binding(announced.folder, workspace.slug)
            case _:
                pass
        self._printer.print()

    @asynccontextmanager
    async def _show_session(self, host: Host, session: Session) -> AsyncIterator[ChatSession]:
        """Print the earlier events of a resumed session, then the banner. During the block, print each new event."""
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
            banner_printer = printer if self._is_interactive else EventPrinter(sys.stderr)
            print_banner(
                banner_printer,
                session,
                mode=session.permission.mode,
                title=options.title,
                stored_roots=options.stored_roots,
                whole_reasons=self._shows_whole_reasons,
            )
            if not options.resume:
                self._print_usage(banner_printer, session)
            yield _OwnSession(session, attachment, events)
        finally:
            showing.cancel()
            await asyncio.wait([showing])

    def _print_usage(self, banner_printer: EventPrinter, session: Session) -> None:
        print_usage(banner_printer, session)

    async def _show_events(self, events: Subscription) -> None:
        try:
            async for stored in events:
                await self._show_event(stored)
        except HoldfastError as error:
            self._print_failure(
                HoldfastError(
                    error.code,
                    f"The rest of this session cannot be shown, because its events cannot be read. {error.message}",
                    hint=f"Leave with /quit. To continue the session later: {self._resume_command}",
                )
            )
        finally:
            events.close()


def _find_announced(registry: Registry, folder: str) -> tuple[Announcement, Workspace] | None:
    """The file that names a workspace for this folder, and that workspace; None if there is nothing to ask."""
    return registry.find_announced(real_path(folder))


class _OwnSession:
    """The `ChatSession` of a session in this process."""

    def __init__(self, session: Session, attachment: Attachment, events: Subscription) -> None:
        self._session = session
        self._attachment = attachment
        self._events = events
        self._progress: dict[str, str] = {}
        session.on_call_progress(self._note_progress)

    def input_schema(self, tool: str) -> JsonObject | None:
        found = next((known for known in self._session.available_tools if known.name == tool), None)
        if found is None or len(found.definition.input_schema) > _MAX_SCHEMA_BYTES:
            return None
        schema = decode_json(found.definition.input_schema)
        return schema if isinstance(schema, dict) else None

    def progress_of(self, call_id: str) -> str:
        return self._progress.get(call_id, "")

    def _note_progress(self, call_id: str, params: Mapping[str, Any]) -> None:
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        parts: list[str] = []
        if isinstance(done, int | float):
            parts.append(f"{done:g} of {total:g}" if isinstance(total, int | float) else f"{done:g}")
        if isinstance(message, str) and message:
            parts.append(self._session.record.mask.mask_all(message[:_MAX_PROGRESS_LENGTH]))
        if len(self._progress) >= _MAX_CALLS_WITH_PROGRESS:
            self._progress.clear()
        self._progress[call_id] = " ".join(parts)

    async def prompt(self, text: str) -> TurnResult:
        try:
            turn = await self._attachment.prompt([{"type": "text", "text": text}])
        except HoldfastError:
            await self._events.wait_handled(self._session.record.events.last)
            raise
        await self._events.wait_handled(turn.last_seq)
        return turn

    def cancel(self) -> None:
        self._attachment.cancel()

    async def cancel_if_running(self) -> bool:
        is_busy = self._session.is_busy
        self._attachment.cancel()
        return is_busy

    def describe(self) -> SessionDescription:
        return describe_session(self._session)

    async def change_mode(self, mode: Mode) -> None:
        await self._session.permission.change_mode(mode, DoorKind.CHAT)
        await self._events.wait_handled(self._session.record.events.last)


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
    """Let the next Ctrl-C end the process at once, because the session is being closed."""
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
