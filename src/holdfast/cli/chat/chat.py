"""A chat: a user types prompts at a terminal, or a pipe delivers them line by line."""

import asyncio
import logging
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from holdfast import telemetry
from holdfast.cli.chat.door import TerminalDoor
from holdfast.cli.chat.history import HISTORY_FILE, load_history, save_history
from holdfast.cli.chat.input import (
    ChatInput,
    Completions,
    InputInterruptedError,
    LogStream,
    PipeInput,
    TerminalInput,
)
from holdfast.cli.event_printer import EventPrinter
from holdfast.cli.output import print_error
from holdfast.host.describe_session import Description
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event
from holdfast.session.turns import INTERNAL_ERROR_REPLY
from holdfast.settings import Settings
from holdfast.store.types import StoredEvent

log = logging.getLogger(__name__)

_QUIT_COMMANDS: dict[str, str] = dict.fromkeys(("/quit", "/exit"), "Leave; you can resume the session later")


class ChatSession(Protocol):
    """The session that a chat is attached to."""

    async def prompt(self, text: str) -> None:
        """Run a turn; returns when all of it is printed."""
        ...

    def cancel(self) -> None:
        """Cancel the running turn."""
        ...

    def describe(self) -> Description:
        """What the input completes: commands, tools and servers."""
        ...


class Chat(ABC):
    """Reads prompts and prints what a session does, on one event loop. Subclasses open the session or attach to it."""

    def __init__(self, settings: Settings, on_end: Callable[[], None] = lambda: None) -> None:
        """`on_end` is called when the chat begins to end."""
        self._settings = settings
        self._on_end = on_end
        self._printer = EventPrinter()
        self._is_interactive = sys.stdin.isatty() and self._printer.is_terminal
        self._door = TerminalDoor(self._ask if self._is_interactive else None)
        self._question_lock = asyncio.Lock()
        self._input: ChatInput = PipeInput()
        self._session: ChatSession | None = None
        self._is_in_turn = False
        self._is_turn_cancelled = False
        self._has_turn_failed = False
        self._has_typed = False
        self._exit_code: int | None = None

    async def run(self) -> int:
        """Chat until the user leaves, the input ends or a signal arrives. Return the exit code."""
        with self._handle_signals():
            try:
                await self._run_session()
            except asyncio.CancelledError:
                if self._exit_code is None:
                    raise
        if self._exit_code is None:
            return 1 if self._has_turn_failed and not self._is_interactive else 0
        return self._exit_code

    @abstractmethod
    async def _run_session(self) -> None:
        """Open the session, and call `_run_prompts`."""

    async def _show_event(self, stored: StoredEvent) -> None:
        await self._input.print_above(partial(self._print_event, stored.event))

    def _print_event(self, event: Event) -> None:
        if decision := self._door.pop_decision_of_others(event):
            self._printer.new_line()
            self._printer.print(f"  {decision}", "yellow")
        self._printer.show(event)
        if self._input.is_open:
            self._printer.new_line()

    async def _run_prompts(self, session: ChatSession, mask: Mask) -> None:
        """Prompt until the user leaves. The mask hides secrets in the stored history of the terminal."""
        self._session = session
        self._open_terminal()
        try:
            await self._prompt_loop(session)
        finally:
            if isinstance(self._input, TerminalInput):
                save_history(self._history_file, self._input.typed, mask)
                self._has_typed = bool(self._input.typed)

    def _open_terminal(self) -> None:
        """From now on, read prompts and answers with line editing, if the user is at a terminal."""
        if not self._is_interactive or isinstance(self._input, TerminalInput):
            return
        self._input = terminal = TerminalInput(load_history(self._history_file), self._completions)
        log_settings = self._settings.log
        telemetry.configure(
            log_settings.level, log_settings.format, LogStream(terminal) if sys.stderr.isatty() else None
        )

    @property
    def _history_file(self) -> Path:
        return self._settings.data_dir / HISTORY_FILE

    async def _prompt_loop(self, session: ChatSession) -> None:
        was_interrupted = False
        while True:
            try:
                text = await self._input.read_prompt()
            except InputInterruptedError:
                if was_interrupted:
                    return
                was_interrupted = True
                self._printer.print("Press Ctrl-C again, or Ctrl-D, to leave.", "dim")
                continue
            was_interrupted = False
            if text is None or text.strip() in _QUIT_COMMANDS:
                return
            if text.strip():
                await self._run_turn(session, text)

    async def _run_turn(self, session: ChatSession, text: str) -> None:
        self._is_in_turn, self._is_turn_cancelled = True, False
        try:
            await session.prompt(text)
        except HoldfastError as error:
            self._print_failure(error)
        except Exception as error:
            log.error("prompt failed", extra={"error": repr(error)})
            log.debug("prompt failed", exc_info=True)
            self._print_failure(HoldfastError(codes.INTERNAL_ERROR, INTERNAL_ERROR_REPLY))
        finally:
            self._is_in_turn = False

    def _print_failure(self, error: HoldfastError) -> None:
        self._has_turn_failed = True
        self._printer.new_line()
        print_error(error)

    async def _ask(self, question: str, about: str) -> str | None:
        """Print `about`, then ask the user. If several calls run at once, their questions are asked one after another."""
        async with self._question_lock:
            if self._is_turn_cancelled:
                return None
            self._printer.new_line()
            if about:
                self._printer.print_lines(about)
            try:
                answer = await self._input.ask(question)
            except InputInterruptedError:
                self._cancel_turn()
                return None
            if answer is None or answer.strip() in _QUIT_COMMANDS:
                self._printer.print("Press Ctrl-C to cancel the turn; then you can leave.", "dim")
            return answer

    def _completions(self) -> Completions:
        if self._session is None:
            return Completions(commands=_QUIT_COMMANDS, arguments={})
        shown = self._session.describe()
        commands = {f"/{command.name}": command.description for command in shown.commands}
        servers = dict.fromkeys((*shown.servers, *shown.starting), "")
        refused = dict.fromkeys(shown.refusals, "refused")
        return Completions(
            commands=commands | _QUIT_COMMANDS,
            arguments={"/call": shown.tools, "/tools": servers | shown.tools, "/why": servers | refused},
        )

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """On Ctrl-C, cancel the turn or, if none is running, leave. On SIGTERM and when the terminal closes, leave."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def leave(code: int) -> None:
            if self._exit_code is None:
                self._exit_code = code
                self._on_end()
                task.cancel()

        def interrupt() -> None:
            if self._input.interrupt():
                return
            if self._is_in_turn and not self._is_turn_cancelled:
                self._cancel_turn()
            else:
                leave(0)

        loop.add_signal_handler(signal.SIGINT, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
                loop.add_signal_handler(number, leave, 128 + number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _cancel_turn(self) -> None:
        self._is_turn_cancelled = True
        if self._session is not None:
            self._session.cancel()
