"""One chat: a conversation with the user at a terminal, or with the lines of a pipe."""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

from holdfast import telemetry
from holdfast.agent.manual import ManualAgent
from holdfast.cli.chat.banner import print_banner, print_usage
from holdfast.cli.chat.history import FILE as HISTORY
from holdfast.cli.chat.history import load_history, save_history
from holdfast.cli.chat.input import (
    ChatInput,
    Completions,
    InputInterruptedError,
    LogStream,
    PipeInput,
    TerminalInput,
)
from holdfast.cli.chat.permission import TerminalDoor
from holdfast.cli.event_printer import EventPrinter
from holdfast.cli.output import print_error
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, Prompted
from holdfast.model.ids import SessionId
from holdfast.session.conversation import INTERNAL_ERROR_REPLY, Conversation
from holdfast.session.permission import Mode
from holdfast.session.session import Session
from holdfast.settings import Settings

log = logging.getLogger(__name__)

_QUIT = dict.fromkeys(("/quit", "/exit"), "Leave; you can resume the session later")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """How to start a chat: the settings, and the session to open or resume."""

    settings: Settings
    open_options: OpenOptions
    mode: Mode | None = None
    """The mode that the user chose with `--mode`."""
    stored_mode: Mode = Mode.ASK
    """The mode that the resumed session had."""
    resume: SessionId | None = None
    title: str = ""
    stored_roots: tuple[str, ...] = ()
    """The additional folders of the resumed session; the user has to grant them again."""


class Chat:
    """Reads prompts and prints what the session does, on one event loop."""

    def __init__(self, options: ChatOptions) -> None:
        self._options = options
        self._printer = EventPrinter()
        self._is_interactive = sys.stdin.isatty() and self._printer.is_terminal
        self._agent = ManualAgent()
        self._questions = asyncio.Lock()
        self._input: ChatInput = PipeInput()
        self._conversation: Conversation | None = None
        self._is_in_turn = False
        self._is_cancelled = False
        self._has_failed = False
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
            return 1 if self._has_failed and not self._is_interactive else 0
        return self._exit_code

    async def _run_session(self) -> None:
        options = self._options
        door = TerminalDoor(self._ask if self._is_interactive else None)
        open_options = replace(options.open_options, door=door)
        async with Host(settings=options.settings) as host:
            session = await (
                host.reopen(options.resume, open_options) if options.resume else host.open(open_options)
            )
            try:
                async with _connecting(session, options.settings.links.wait_seconds):
                    self._conversation = await self._start_conversation(host, session, door)
                    await self._run_prompts(self._conversation)
            finally:
                _leave_at_next_interrupt()
                await host.close_session(session)

    async def _start_conversation(self, host: Host, session: Session, door: TerminalDoor) -> Conversation:
        printer, options = self._printer, self._options
        if options.resume:
            async for stored in host.store.events(session.context.session_id):
                printer.show(stored.event)
            printer.new_line()
        conversation = Conversation(session, self._agent, door, has_title=bool(options.title))
        conversation.permissions.mode = options.stored_mode
        if options.mode not in (None, options.stored_mode):
            await conversation.permissions.change_mode(options.mode)
        print_banner(
            printer,
            session,
            mode=conversation.permissions.mode,
            title=options.title,
            stored_roots=options.stored_roots,
        )
        if not options.resume:
            print_usage(printer)
        session.record.listen(self._show)
        return conversation

    async def _show(self, event: Event) -> None:
        if not isinstance(event, Prompted):  # the terminal already shows what the user typed
            await self._input.show(self._printer, event)

    async def _run_prompts(self, conversation: Conversation) -> None:
        if not self._is_interactive:
            await self._prompt_loop(conversation)
            return
        history = self._options.settings.data_dir / HISTORY
        self._input = terminal = TerminalInput(load_history(history), self._completions)
        log_settings = self._options.settings.log
        telemetry.configure(
            log_settings.level, log_settings.format, LogStream(terminal) if sys.stderr.isatty() else None
        )
        try:
            await self._prompt_loop(conversation)
        finally:
            save_history(history, terminal.typed, conversation.session.record.mask)
        if terminal.typed:
            self._printer.new_line()
            self._printer.print("\nTo resume this session: holdfast chat --resume", "dim")

    async def _prompt_loop(self, conversation: Conversation) -> None:
        is_warned = False
        while True:
            try:
                text = await self._input.read_prompt()
            except InputInterruptedError:
                if is_warned:
                    return
                is_warned = True
                self._printer.print("Press Ctrl-C again, or Ctrl-D, to leave.", "dim")
                continue
            is_warned = False
            if text is None or text.strip() in _QUIT:
                return
            if text.strip():
                await self._run_turn(conversation, text)

    async def _run_turn(self, conversation: Conversation, text: str) -> None:
        self._is_in_turn, self._is_cancelled = True, False
        try:
            await conversation.prompt([{"type": "text", "text": text}])
        except HoldfastError as error:
            self._print_failure(error)
        except Exception as error:
            log.error("prompt failed", extra={"error": repr(error)})
            log.debug("prompt failed", exc_info=True)
            self._print_failure(HoldfastError(codes.INTERNAL_ERROR, INTERNAL_ERROR_REPLY))
        finally:
            self._is_in_turn = False

    def _print_failure(self, error: HoldfastError) -> None:
        self._has_failed = True
        self._printer.new_line()
        print_error(error)

    async def _ask(self, question: str, about: str) -> str | None:
        """Print `about`, then ask the user. The questions of concurrent calls are asked one after another."""
        async with self._questions:
            if self._is_cancelled:
                return None
            self._printer.new_line()
            if about:
                self._printer.print(about)
            try:
                answer = await self._input.ask(question)
            except InputInterruptedError:
                self._cancel_turn()
                return None
            if answer is None or answer.strip() in _QUIT:
                self._printer.print("Press Ctrl-C to cancel the turn; then you can leave.", "dim")
            return answer

    def _completions(self) -> Completions:
        commands = {f"/{command.name}": command.description for command in self._agent.commands}
        if self._conversation is None:
            return Completions(commands={**commands, **_QUIT}, arguments={})
        session = self._conversation.session
        tools = {
            tool.name: (tool.definition.description or tool.definition.title or "").strip().partition("\n")[0]
            for tool in session.available_tools
        }
        servers = dict.fromkeys((*session.available, *session.starting), "")
        refused = {refusal.server: "refused" for refusal in session.refusals}
        return Completions(
            commands={**commands, **_QUIT},
            arguments={"/call": tools, "/tools": servers | tools, "/why": servers | refused},
        )

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """Cancel the turn on Ctrl-C, or leave if none is running. End the chat on SIGTERM and when the terminal closes."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def leave(code: int) -> None:
            if self._exit_code is None:
                self._exit_code = code
                task.cancel()

        def interrupt() -> None:
            if self._input.interrupt():
                return
            if self._is_in_turn and not self._is_cancelled:
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
        self._is_cancelled = True
        if self._conversation is not None:
            self._conversation.cancel()


@asynccontextmanager
async def _connecting(session: Session, seconds: float) -> AsyncIterator[None]:
    """Wait up to `seconds` for the session's servers. Slower ones continue to connect while the block runs."""
    connecting = asyncio.create_task(session.wait_for_servers())
    try:
        await asyncio.wait([connecting], timeout=seconds)
        yield
    finally:
        connecting.cancel()
        await asyncio.wait([connecting])


def _leave_at_next_interrupt() -> None:
    """Exit at once if the user presses Ctrl-C while the session is being closed."""
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
