"""A chat: reads prompts from a terminal or a pipe, runs them, and prints what happens."""

import asyncio
import itertools
import json
import logging
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from holdfast import log_output
from holdfast.agent.parse_commands import CALL
from holdfast.cli.chat.door import TerminalDoor
from holdfast.cli.chat.form import FormDeclinedError, fill_in
from holdfast.cli.chat.help import CHAT_COMMANDS, print_chat_commands
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
from holdfast.host.describe_session import SessionDescription
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, ToolEnded
from holdfast.model.event_text import tool_name
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode, require_mode
from holdfast.session.turns import INTERNAL_ERROR_REPLY, TurnResult
from holdfast.settings import Settings
from holdfast.store.types import StoredEvent

log = logging.getLogger(__name__)

_QUIT_COMMANDS = ("/quit", "/exit")
_MODE = "/mode"
_MODE_EXAMPLES = " or ".join(f"{_MODE} {mode}" for mode in Mode)
_APPROVE = "/approve"
_STOP = "/stop"
_HELP = "/help"
_STATUS_INTERVAL_SECONDS = 0.1  # how long each character of the spinner is shown
_STATUS_DELAY_SECONDS = 1.0
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class ChatSession(Protocol):
    """The session that a chat is attached to."""

    async def prompt(self, text: str) -> TurnResult:
        """Run a turn. Returns when all its events are printed."""
        ...

    def cancel(self) -> None:
        """Cancel the running turn, without waiting for it, so that a signal handler can call this."""
        ...

    async def cancel_if_running(self) -> bool:
        """Cancel the running turn, even if another editor or terminal started it. Returns False if no turn is running."""
        ...

    def describe(self) -> SessionDescription:
        """The mode of the session, and its commands, tools and servers."""
        ...

    async def change_mode(self, mode: Mode) -> None:
        """Change the session's mode. Returns when the change is printed."""
        ...

    def input_schema(self, tool: str) -> JsonObject | None:
        """The schema of a tool's arguments; None if it is not known."""
        ...

    def progress_of(self, call_id: str) -> str:
        """The last progress of a call that the server reported; empty if it reported none."""
        ...


class Chat(ABC):
    """Reads prompts and prints what a session does, on one event loop. Subclasses open the session or attach to it."""

    _commands = CHAT_COMMANDS

    def __init__(self, settings: Settings, on_end: Callable[[], None] = lambda: None) -> None:
        """`on_end` is called when the chat starts to shut down."""
        self._settings = settings
        self._on_end = on_end
        self._printer = EventPrinter()
        self._is_interactive = sys.stdin.isatty() and self._printer.is_terminal
        self._door = TerminalDoor(self._ask if self._is_interactive else None, self._print_withdrawn)
        self._question_lock = asyncio.Lock()
        self._input: ChatInput = PipeInput()
        self._session: ChatSession | None = None
        self._is_in_turn = False
        self._is_turn_cancelled = False
        self._cancellations = 0
        """How often the user pressed Ctrl-C at a question or during a turn."""
        self._last_event_at = 0.0
        """When the last event was printed (`time.monotonic`)."""
        self._has_turn_failed = False
        self._has_call_failed = False
        self._has_typed = False
        """Whether the user typed a prompt at the terminal."""
        self._exit_code: int | None = None

    async def run(self) -> int:
        """Chat until the user leaves, the input ends or a signal arrives. Return the exit code."""
        with self._handle_signals():
            try:
                await self._run_session()
            except asyncio.CancelledError:
                if self._exit_code is None:
                    raise
        self._printer.finish()
        if self._exit_code is None:
            has_failed = self._has_turn_failed or self._has_call_failed
            return 1 if has_failed and not self._is_interactive else 0
        return self._exit_code

    @abstractmethod
    async def _run_session(self) -> None:
        """Open the session, and call `_run_prompts`."""

    async def _show_event(self, stored: StoredEvent) -> None:
        await self._input.print_above(partial(self._print_event, stored))

    def _print_event(self, stored: StoredEvent) -> None:
        event = stored.event
        self._last_event_at = time.monotonic()
        is_new = self._session is not None  # earlier events belong to the resumed conversation
        if is_new and isinstance(event, ToolEnded) and event.outcome is not Outcome.COMPLETED:
            self._has_call_failed = True
        if decision := self._door.note_event(event):
            self._printer.new_line()
            self._printer.print(f"  {decision}", "yellow")
            return
        self._printer.prints_whole_rows = self._input.is_open
        self._printer.show_stored(stored)

    async def _run_prompts(self, session: ChatSession, mask: Mask) -> None:
        """Read and run prompts until the user leaves. The mask is applied to the prompts that the history file gets."""
        self._session = session
        self._open_terminal()
        try:
            await self._prompt_loop(session)
        finally:
            if isinstance(self._input, TerminalInput):
                save_history(self._history_file, self._prompts_to_save(self._input.typed), mask)
                self._has_typed = bool(self._input.typed)

    def _prompts_to_save(self, typed: Sequence[str]) -> Sequence[str]:
        """Which of the typed prompts to store for the arrow keys of later chats."""
        return typed

    def _open_terminal(self) -> None:
        """If the user is at a terminal, switch to an input with line editing."""
        if not self._is_interactive or isinstance(self._input, TerminalInput):
            return
        self._input = terminal = TerminalInput(
            load_history(self._history_file), self._completions, self._printer.prepare_prompt
        )
        log_settings = self._settings.log
        log_output.configure(
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
                self._printer.print(
                    "Press Ctrl-C again, or Ctrl-D, to leave. /stop cancels a running turn.", "dim"
                )
                continue
            was_interrupted = False
            if text is None or _first_word(text) in _QUIT_COMMANDS:
                return
            if _first_word(text) == _MODE:
                await self._change_mode(session, text.strip().removeprefix(_MODE).strip())
            elif _first_word(text) == _APPROVE:
                await self._approve()
            elif _first_word(text) == _STOP:
                await self._stop_turn(session)
            elif text.strip() and (filled := await self._fill_in_call(session, text)):
                await self._run_turn(session, filled)
                if advice := self._advice_after(text):
                    self._printer.new_line()
                    self._printer.print(advice, "dim")
                if _first_word(text) == _HELP:
                    print_chat_commands(self._printer, self._commands)

    def _advice_after(self, text: str) -> str:
        """Advice to print after the turn of this prompt; empty if there is none. Overridden by `OwnChat`."""
        return ""

    async def _stop_turn(self, session: ChatSession) -> None:
        """Run `/stop`. The end of a cancelled turn is printed as an event."""
        try:
            if not await session.cancel_if_running():
                self._printer.print("No turn is running.")
        except HoldfastError as error:
            self._print_failure(error)

    async def _approve(self) -> None:
        """Say how to review servers and tools. `OwnChat` reviews the servers itself."""
        self._printer.print("To review the project's servers and changed tools: holdfast servers approve")

    async def _fill_in_call(self, session: ChatSession, text: str) -> str:
        """Complete a prompt: if it is a call without arguments, ask the user for them. Returns an empty text if the user cancels."""
        command, *rest = text.split()
        if not self._is_interactive or command != CALL or len(rest) != 1 or "\n" in text.strip():
            return text
        schema = session.input_schema(rest[0])
        if schema is None or not schema.get("properties"):
            return text
        self._printer.print(
            f"  Arguments of {rest[0]}; Enter leaves an optional one out, Ctrl-C cancels.", "dim"
        )
        try:
            arguments = await fill_in(schema, self._input.ask, self._printer.print)
        except (FormDeclinedError, InputInterruptedError):
            self._printer.new_line()
            self._printer.print("Nothing was called.", "yellow")
            return ""
        return f"{CALL} {rest[0]} {json.dumps(arguments, ensure_ascii=False)}"

    async def _change_mode(self, session: ChatSession, name: str) -> None:
        """Change the session's mode. Without a name, print the mode."""
        try:
            if name:
                await session.change_mode(require_mode(name))
            else:
                self._printer.print(
                    f"The mode is {session.describe().mode}. To change it, type {_MODE_EXAMPLES}."
                )
        except HoldfastError as error:
            self._print_failure(error)

    async def _run_turn(self, session: ChatSession, text: str) -> None:
        self._is_in_turn, self._is_turn_cancelled = True, False
        status = asyncio.create_task(self._show_status(session)) if self._is_interactive else None
        try:
            if not (await session.prompt(text)).ok:  # the reply says why
                self._has_turn_failed = True
        except HoldfastError as error:
            self._print_failure(error)
        except Exception as error:
            log.error("prompt failed", extra={"error": repr(error)})
            log.debug("prompt failed", exc_info=True)
            self._print_failure(HoldfastError(codes.INTERNAL_ERROR, INTERNAL_ERROR_REPLY))
        finally:
            self._is_in_turn = False
            if status is not None:
                status.cancel()
                self._printer.clear_status()

    async def _show_status(self, session: ChatSession) -> None:
        """If a call runs for longer than a second, show its tool, its time, and the progress that the server reports.

        If the model is silent for longer than a second, show that it is thinking.
        """
        began: dict[str, float] = {}  # when each running call began, by its id
        self._last_event_at = time.monotonic()
        for tick in itertools.count():
            await asyncio.sleep(_STATUS_INTERVAL_SECONDS)
            calls, now = self._printer.open_calls, time.monotonic()
            began = {
                call_id: began.get(call_id, now)
                for call_id in calls
                if call_id in self._printer.started_calls
            }
            slow = [call_id for call_id, start in began.items() if now - start >= _STATUS_DELAY_SECONDS]
            if self._input.is_open or self._question_lock.locked():
                continue
            if not calls and now - self._last_event_at >= _STATUS_DELAY_SECONDS:
                self._printer.show_status(
                    f"{_SPINNER[tick % len(_SPINNER)]} thinking …  {now - self._last_event_at:.0f} s"
                )
            if not slow:
                continue
            progress = session.progress_of(slow[-1])
            more = f", and {len(slow) - 1} more" if len(slow) > 1 else ""
            spinner = _SPINNER[tick % len(_SPINNER)]
            seconds = f"{now - began[slow[-1]]:.0f} s"
            name = tool_name(calls[slow[-1]])
            self._printer.show_status(
                f"{spinner} {name}{more}  {seconds}{f'  {progress}' if progress else ''}"
            )

    def _print_failure(self, error: HoldfastError) -> None:
        self._has_turn_failed = True
        self._printer.clear_status()
        self._printer.new_line()
        print_error(error)

    async def _ask(self, question: str, about: str) -> str | None:
        """Print `about`, then ask the user. Returns None if the turn is cancelled or the input has ended.

        Several calls may run at the same time: their questions are asked one after another.
        """
        cancellations = self._cancellations
        async with self._question_lock:
            # The turn may have been cancelled while this question waited for another one.
            if self._cancellations > cancellations:
                return None

            def print_about() -> None:
                self._printer.new_line()
                if about:
                    self._printer.print_lines(about)

            try:
                answer = await self._input.ask(question, print_about)
            except InputInterruptedError:
                self._cancel_turn()
                return None
            if answer is None or _first_word(answer) in _QUIT_COMMANDS:
                self._printer.print("Press Ctrl-C to cancel the turn; then you can leave.", "dim")
            return answer

    def _make_review_ask(self) -> Callable[[str], Awaitable[str]]:
        """Make a function that asks the questions of a review. After Ctrl-C at one question, all further answers are empty."""
        cancellations = self._cancellations

        async def ask(question: str) -> str:
            return "" if self._cancellations > cancellations else await self._ask(f"{question} ", "") or ""

        return ask

    def _print_withdrawn(self) -> None:
        """Say that a server's question, which is still on the screen, no longer needs an answer."""
        self._printer.new_line()
        self._printer.print(
            "  The question is no longer asked: it was answered elsewhere, or the call has ended.", "yellow"
        )

    def _completions(self) -> Completions:
        own = {f"/{command.name}": command.description for command in self._commands}
        if self._session is None:
            return Completions(commands=own, arguments={})
        session = self._session.describe()
        commands = {f"/{command.name}": command.description for command in session.commands}
        servers = dict.fromkeys((*session.servers, *session.starting), "")
        refused = dict.fromkeys(session.refusals, "refused")
        return Completions(
            commands=commands | own,
            tool_arguments=self._argument_names,
            arguments={
                "/call": session.tools,
                "/tools": servers | session.tools,
                "/why": servers | refused,
                "/logs": servers | refused,
                "/resources": servers,
                "/prompts": servers,
                _MODE: dict.fromkeys(Mode, ""),
            },
        )

    def _argument_names(self, tool: str) -> tuple[str, ...]:
        schema = self._session.input_schema(tool) if self._session is not None else None
        properties = schema.get("properties") if schema is not None else None
        return tuple(properties) if isinstance(properties, dict) else ()

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """On Ctrl-C, cancel the turn; without a turn, leave. On SIGTERM, and when the terminal closes, leave."""
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
        self._cancellations += 1
        if self._session is not None:
            self._session.cancel()


def _first_word(text: str) -> str:
    return next(iter(text.split(maxsplit=1)), "")
