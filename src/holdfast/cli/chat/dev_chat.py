"""The chat of `holdfast dev`: one server, which is restarted when its source files are saved."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from holdfast.agent.describe_arguments import example_arguments, required_arguments
from holdfast.cli.chat.chat import ChatSession
from holdfast.cli.chat.help import DEV_COMMANDS
from holdfast.cli.chat.own_chat import ChatOptions, OwnChat
from holdfast.cli.event_printer import EventPrinter
from holdfast.cli.output import print_error
from holdfast.cli.source_files import find_changed_file, read_file_states
from holdfast.cli.terminal_text import replace_unprintable
from holdfast.host.describe_session import SessionDescription
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.model.plural import count
from holdfast.model.worker_threads import WorkerThreads
from holdfast.session.session import Session
from holdfast.session.turns import TurnResult

_POLL_SECONDS = 0.5
_THREADS = WorkerThreads("source files", threads=1)


class DevChat(OwnChat):
    """Calls the tools of one server, which needs no approval because it is the user's own program."""

    _commands = DEV_COMMANDS
    _shows_whole_reasons = True

    def __init__(
        self,
        options: ChatOptions,
        server: str,
        command: Sequence[str],
        folder: Path,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`command` starts the server, and `folder` has its source files."""
        super().__init__(options, on_end)
        self._server = server
        self._command = command
        self._folder = folder

    async def _review_project(self, host: Host, open_options: OpenOptions) -> None:
        pass  # the session has no servers of the project

    @asynccontextmanager
    async def _show_session(self, host: Host, session: Session) -> AsyncIterator[ChatSession]:
        restarter = _Restarter(host, session, self._server, self._folder, self._print_notice)
        if not self._is_interactive:  # the first command, such as /tools, must find the server's tools
            await session.wait_ready()
        async with super()._show_session(host, session) as chat_session:
            watching = asyncio.create_task(restarter.watch())
            try:
                yield _DevSession(chat_session, restarter)
            finally:
                watching.cancel()
                await asyncio.wait([watching])
                if not restarter.has_started:
                    self._has_turn_failed = True  # a script gets the exit code 1

    async def _print_notice(self, text: str, error: HoldfastError | None = None) -> None:
        await self._input.print_above(partial(self._print_now, text, error))

    def _print_now(self, text: str, error: HoldfastError | None) -> None:
        self._printer.new_line()
        self._printer.print(replace_unprintable(text), "yellow" if error else "dim")
        if error is not None:
            print_error(error)

    def _print_usage(self, banner_printer: EventPrinter, session: Session) -> None:
        tools = [tool for tool in session.available_tools if tool.server.name == self._server]
        banner_printer.print("Type")
        # A tool without required arguments, if there is one: its example works as it is printed.
        tool = min(tools, key=lambda tool: bool(required_arguments(tool.definition)), default=None)
        call = "" if tool is None else f"/call {tool.name} {example_arguments(tool.definition)}"
        has_placeholders = tool is not None and bool(required_arguments(tool.definition))
        for command, purpose in (
            ("/tools", "list the tools"),
            (call, "call a tool, with your values for <…>" if has_placeholders else "call a tool"),
            (f"/logs {self._server}", "show what the server wrote to standard error"),
            ("/quit", "leave"),
        ):
            if command:
                banner_printer.print(f"  {replace_unprintable(command):<36}  ", "cyan", end="")
                banner_printer.print(purpose, "dim")
        banner_printer.print(f"Saving a source file in {self._folder} restarts the server.", "dim")
        inspector = shlex.join(["npx", "@modelcontextprotocol/inspector", *self._command])
        banner_printer.print(f"To try the server in a browser: {replace_unprintable(inspector)}", "dim")
        banner_printer.print()


class _Restarter:
    """Restarts the server when one of its source files is saved, added or deleted."""

    def __init__(self, host: Host, session: Session, server: str, folder: Path, notify: "_Notify") -> None:
        self._host = host
        self._session = session
        self._server = server
        self._folder = folder
        self._notify = notify
        self._states = read_file_states(folder)
        self._lock = asyncio.Lock()
        self._has_restart_failed = False

    @property
    def has_started(self) -> bool:
        """Whether the last start of the server succeeded."""
        return self._server in self._session.available and not self._has_restart_failed

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            await self.restart_if_changed()

    async def restart_if_changed(self) -> None:
        async with self._lock:
            now = await _THREADS.run(read_file_states, self._folder)
            changed = find_changed_file(self._states, now)
            if changed:
                self._states = now
                await self._restart(changed)

    async def _restart(self, changed: str) -> None:
        session, links = self._session, self._host.links
        await links.close_links(session.scope)
        try:
            await links.connect(session.scope, session.server(self._server), ignore_back_off=True)
        except HoldfastError as error:
            self._has_restart_failed = True
            with_hint = HoldfastError(
                error.code, error.message, hint="Correct the file and save it: the server is started again."
            )
            await self._notify(f"{changed} was changed, but the server does not start:", with_hint)
            return
        self._has_restart_failed = False
        session.refresh_tools(self._server)
        await session.wait_ready()
        tools = count(len(session.available_tools), "tool")
        await self._notify(f"{changed} was changed: {self._server} was started again, with {tools}.")


class _Notify(Protocol):
    async def __call__(self, text: str, error: HoldfastError | None = None) -> None: ...


class _DevSession:
    """A `ChatSession` that restarts a changed server before each prompt."""

    def __init__(self, wrapped: ChatSession, restarter: _Restarter) -> None:
        self._wrapped = wrapped
        self._restarter = restarter

    async def prompt(self, text: str) -> TurnResult:
        await self._restarter.restart_if_changed()
        return await self._wrapped.prompt(text)

    def cancel(self) -> None:
        self._wrapped.cancel()

    async def cancel_if_running(self) -> bool:
        return await self._wrapped.cancel_if_running()

    def describe(self) -> SessionDescription:
        return self._wrapped.describe()

    def input_schema(self, tool: str) -> JsonObject | None:
        return self._wrapped.input_schema(tool)

    def progress_of(self, call_id: str) -> str:
        return self._wrapped.progress_of(call_id)

    async def change_mode(self, mode: Mode) -> None:
        await self._wrapped.change_mode(mode)
