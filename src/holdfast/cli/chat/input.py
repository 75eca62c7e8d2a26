"""Reads prompts: at a terminal with line editing, from a pipe line by line."""

import asyncio
import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.agent.parse_commands import CALL, parse_commands
from holdfast.cli.event_printer import PROMPT, PROMPT_CONTINUATION
from holdfast.cli.output import discard_typed_input
from holdfast.cli.terminal_text import replace_unprintable, wrap_question
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.visible_text import is_visible

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import Output

_ARGUMENT = re.compile(
    r"""\s*(?P<tool>\S+)\s+(?P<json>(?:\{(?:[^"]|"(?:[^"\\]|\\.)*")*,\s*)?)(?P<word>(?:\{\s*)?(?:"[^"]*)?)$"""
)
"""What follows `/call ` while the name of an argument is typed: the tool, the JSON so far, and the beginning of the name."""
MAX_LINE_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_TERMINAL_CLOSED_ERRORS = (errno.EIO, errno.EPIPE, errno.EBADF)


class InputInterruptedError(Exception):
    """The user pressed Ctrl-C at a question or at an empty prompt, or the process got SIGINT while one was open."""


class _PromptSuspendedError(Exception):
    """The prompt was closed for a question. `draft` is the text that the user had typed."""

    def __init__(self, draft: str) -> None:
        super().__init__()
        self.draft = draft


class ChatInput(Protocol):
    """Reads a chat's prompts, and prints events without disturbing a prompt that is being typed."""

    async def read_prompt(self) -> str | None:
        """Read the next prompt, which may have several lines. Returns None at the end of the input."""
        ...

    async def ask(self, question: str, print_before: Callable[[], None] | None = None) -> str | None:
        """Ask a question and read the answer. Returns None at the end of the input.

        `print_before` prints what the question is about, once no prompt is on the screen.
        """
        ...

    @property
    def is_open(self) -> bool:
        """Whether a prompt or a question is on the screen."""
        ...

    async def print_above(self, print_text: Callable[[], None]) -> None:
        """Call a function that prints. While a prompt or a question is open, the text appears above it."""
        ...

    def interrupt(self) -> bool:
        """Handle SIGINT: interrupt the open prompt or question, as Ctrl-C does. Returns False if none is open."""
        ...


class PipeInput:
    """Reads lines from standard input without blocking the event loop."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._is_at_end = False
        self._next_prompt = ""
        """A line that was read already, because it ended an unfinished `/call`."""

    async def read_prompt(self) -> str | None:
        """Read the next line. If the JSON of a `/call` is unfinished, read more lines until it is complete.

        An empty line, or a line with the next command, ends the call too: no line of JSON begins with a slash.
        """
        text = self._next_prompt or await self._read_line()
        self._next_prompt = ""
        while text and is_unclosed(text) and (more := await self._read_line()):
            if more.lstrip().startswith("/"):
                self._next_prompt = more
                break
            text = f"{text}\n{more}"
        return text

    async def ask(self, question: str, print_before: Callable[[], None] | None = None) -> str | None:
        if print_before is not None:
            print_before()
        answer, self._next_prompt = self._next_prompt, ""
        return answer or await self._read_line()

    @property
    def is_open(self) -> bool:
        return False

    async def print_above(self, print_text: Callable[[], None]) -> None:
        print_text()

    def interrupt(self) -> bool:
        return False

    async def _read_line(self) -> str | None:
        searched_bytes = 0
        while (end := self._buffer.find(b"\n", searched_bytes)) < 0 and not self._is_at_end:
            searched_bytes = len(self._buffer)
            if searched_bytes >= MAX_LINE_BYTES:
                raise HoldfastError(
                    codes.BAD_ARGUMENT,
                    f"A line of the input is too long: {MAX_LINE_BYTES} bytes or more.",
                    hint="Split the line.",
                )
            self._buffer += await self._read_chunk()
        if end < 0:
            end = len(self._buffer)
        if not self._buffer:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line.decode(errors="replace").rstrip("\r\n")

    async def _read_chunk(self) -> bytes:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(self._descriptor, lambda: readable.done() or readable.set_result(None))
        except OSError:  # a regular file cannot be polled, but reading it does not block
            pass
        else:
            try:
                await readable
            finally:
                loop.remove_reader(self._descriptor)
        chunk = os.read(self._descriptor, _CHUNK_BYTES)
        self._is_at_end = not chunk
        return chunk


class TerminalInput:
    """Reads prompts at a terminal, with line editing, history and completion."""

    def __init__(
        self,
        history: Sequence[str],
        completions: Callable[[], "Completions"],
        before_prompt: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_prompt` is called before each prompt is drawn. It must move the cursor to the beginning of a line."""
        # Importing prompt_toolkit is slow, so only an interactive chat imports it.
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import DummyHistory, InMemoryHistory

        self._before_prompt = before_prompt
        self.typed: list[str] = []
        """The prompts of this chat, oldest first."""
        output = _create_output()
        self._is_printing = False
        """Whether a text is being printed above the prompt."""
        self._keys = _create_input(stays_raw=lambda: self._is_printing)
        self._prompts: PromptSession[str] = PromptSession(
            PROMPT,
            completer=_create_completer(completions),
            complete_while_typing=False,
            enable_suspend=True,
            history=InMemoryHistory(history),
            input=self._keys,
            interrupt_exception=InputInterruptedError,
            key_bindings=_create_key_bindings(),
            multiline=True,
            output=output,
            prompt_continuation=PROMPT_CONTINUATION,
        )
        self._questions: PromptSession[str] = PromptSession(
            enable_suspend=True,
            history=DummyHistory(),
            input=self._keys,
            interrupt_exception=InputInterruptedError,
            output=output,
        )
        self._questions.app.before_render += self._before_render
        self._is_question_undrawn = False
        """Whether a question was asked and is not drawn yet."""
        self._open: PromptSession[str] | None = None
        """The prompt or question that is on the screen."""
        self._reading: asyncio.Future[str] | None = None
        """The task that reads the open prompt or question."""
        self._screen = asyncio.Lock()
        """Held while a text is printed above the prompt, and while a prompt is closed."""
        self._start_tried = asyncio.Event()
        """Set when prompt_toolkit has started the open prompt or question, or could not start it."""
        self._prompt_closed = asyncio.Event()
        """Set when a prompt that was suspended for a question is gone from the screen."""
        self._question_closed = asyncio.Event()
        """Set unless a question is asked or waits for the prompt to be suspended."""
        self._question_closed.set()

    async def read_prompt(self) -> str | None:
        """Read the next prompt. Raises `InputInterruptedError` on Ctrl-C."""
        draft = ""
        while True:
            while not self._question_closed.is_set():  # in a loop: another question may follow at once
                await self._question_closed.wait()
            self._before_prompt()
            try:
                text = await self._read(self._prompts, PROMPT, draft)
                break
            except _PromptSuspendedError as suspended:
                draft = suspended.draft
        if text is None:
            return None
        text = text.rstrip()
        if text:
            self.typed.append(text)
        return text

    async def ask(self, question: str, print_before: Callable[[], None] | None = None) -> str | None:
        """Ask a question and read the answer, which is not added to the history. Raises `InputInterruptedError` on Ctrl-C.

        Keys that were pressed before the question was shown are discarded. A prompt that is being typed is closed during
        the question, and reopened afterwards with its text.
        """
        self._question_closed.clear()
        try:
            await self._suspend_prompt()
            if print_before is not None:
                print_before()
            return await self._ask(question if "\n" in question else wrap_question(question))
        finally:
            self._question_closed.set()

    async def _suspend_prompt(self) -> None:
        app = self._prompts.app
        if self._open is self._prompts:
            await self._start_tried.wait()  # a prompt can be closed only after prompt_toolkit has started it
        if self._open is self._prompts and app.is_running and not app.is_done:
            self._prompt_closed.clear()
            app.erase_when_done = True  # the prompt is drawn again, with its text, after the question
            try:
                app.exit(exception=_PromptSuspendedError(self._prompts.default_buffer.text))
                await self._prompt_closed.wait()
            finally:
                app.erase_when_done = False
        elif self._open is self._prompts and self._reading is not None:  # the prompt is being closed
            await asyncio.wait([self._reading])

    async def _ask(self, question: str) -> str | None:
        self._discard_keys()
        self._is_question_undrawn = True
        return await self._read(self._questions, question)

    async def print_above(self, print_text: Callable[[], None]) -> None:
        from prompt_toolkit.application import in_terminal

        async with self._screen:
            app = self._open.app if self._open is not None else None
            if app is not None and app.is_running and app.is_done and self._reading is not None:
                # The prompt is being closed, and would draw over the text.
                await asyncio.wait([self._reading])
            if app is None or not app.is_running:
                print_text()
                return
            self._is_printing = True
            try:
                async with in_terminal():
                    print_text()
            finally:
                self._is_printing = False

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def interrupt(self) -> bool:
        if self._open is None or not self._open.app.is_running:
            return False
        if self._open is self._prompts and self._prompts.default_buffer.text:
            self._prompts.default_buffer.reset()
            self._prompts.app.invalidate()
        elif not self._open.app.is_done:
            self._open.app.exit(exception=InputInterruptedError)
        return True

    def _before_render(self, _: object) -> None:
        """Discard also the keys that were pressed while prompt_toolkit prepared the question."""
        if self._is_question_undrawn:
            self._is_question_undrawn = False
            self._discard_keys()

    def _discard_keys(self) -> None:
        """Discard the keys that were pressed and not read yet: in prompt_toolkit's buffer and in the terminal's."""
        from prompt_toolkit.input.typeahead import clear_typeahead

        clear_typeahead(self._keys)
        discard_typed_input(self._keys.fileno())

    async def _read(self, session: "PromptSession[str]", message: str, draft: str = "") -> str | None:
        """Read a prompt or question, which begins with the text `draft`. None at the end of the input."""
        self._start_tried.clear()
        reading = self._reading = asyncio.ensure_future(
            session.prompt_async(
                message,
                default=draft,
                set_exception_handler=False,
                handle_sigint=False,
                pre_run=self._start_tried.set,
            )
        )
        self._open = session
        try:
            text = await asyncio.shield(reading)
        except asyncio.CancelledError:  # for example, the question was answered at another door
            async with self._screen:
                if session.app.is_running and not session.app.is_done:
                    # The text typed so far stays on the screen, and a new line is started.
                    session.app.exit(exception=EOFError)
                await asyncio.wait([reading])
                reading.exception()  # retrieve the EOFError, so that asyncio does not log it
            raise
        except EOFError:
            return None
        except OSError as error:
            if error.errno not in _TERMINAL_CLOSED_ERRORS:
                raise
            return None
        finally:
            self._open = None
            self._start_tried.set()
            self._prompt_closed.set()
        return text.encode(errors="replace").decode()  # replace surrogates, which JSON cannot encode


class LogStream(io.TextIOWrapper):
    """Writes logs to standard error, from any thread. While a prompt is open, it writes them above the prompt."""

    def __init__(self, terminal: TerminalInput) -> None:
        super().__init__(os.fdopen(os.dup(2), "wb", buffering=0), write_through=True)
        self._terminal = terminal
        self._loop = asyncio.get_running_loop()
        self._writing: set[asyncio.Task[None]] = set()

    def write(self, text: str) -> int:
        if self._terminal.is_open and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._start_writing, text)
        else:
            super().write(text)
        return len(text)

    def _start_writing(self, text: str) -> None:
        task = self._loop.create_task(self._terminal.print_above(lambda: self._write(text)))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def _write(self, text: str) -> None:
        super().write(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """The words that Tab completes, each with its description."""

    commands: Mapping[str, str]
    arguments: Mapping[str, Mapping[str, str]]
    """The words that may follow each command."""
    tool_arguments: Callable[[str], Sequence[str]] = lambda tool: ()
    """The names of a tool's arguments."""

    def find(self, line: str) -> tuple[str, dict[str, str]]:
        """Return the word at the end of the line, and its completions. Words with control characters are left out."""
        command, space, rest = line.lstrip().partition(" ")
        if command == CALL and (after := _ARGUMENT.match(rest)):
            return self._find_argument(after["tool"], after["json"], after["word"])
        word = rest.lstrip() if space else command
        words = self.arguments.get(command, {}) if space else self.commands
        return word, {
            name: replace_unprintable(words[name])
            for name in sorted(words)
            if name.startswith(word) and is_visible(name)
        }

    def _find_argument(self, tool: str, before: str, word: str) -> tuple[str, dict[str, str]]:
        """Complete the name of an argument that the JSON `before` does not have. Each completion ends where the value begins."""
        opening = "" if before else "{"
        names = (name for name in self.tool_arguments(tool) if f'"{name}"' not in before and is_visible(name))
        texts = sorted(f'{opening}"{name}": ' for name in names)
        return word, dict.fromkeys((text for text in texts if text.startswith(word)), "")


def is_unclosed(text: str) -> bool:
    """Return whether the text ends inside the JSON of a `/call`."""
    commands = parse_commands([{"type": "text", "text": text}])
    return bool(commands) and commands[-1].is_unclosed


def _create_input(stays_raw: Callable[[], bool]) -> "Input":
    """The terminal input, which can stay in raw mode while a text is printed above the prompt.

    In any other mode, the terminal shows the keys that are pressed during the printing, and swallows a Ctrl-D.
    """
    from prompt_toolkit.input.vt100 import Vt100Input

    class Keys(Vt100Input):
        def cooked_mode(self) -> contextlib.AbstractContextManager[None]:
            return contextlib.nullcontext() if stays_raw() else super().cooked_mode()

    return Keys(sys.stdin)


def _create_output() -> "Output | None":
    """The terminal output, without cursor position requests: a late response would be read as typed text."""
    from prompt_toolkit.output.vt100 import Vt100_Output
    from prompt_toolkit.utils import is_dumb_terminal

    if is_dumb_terminal():
        return None  # prompt_toolkit has a special output for dumb terminals
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output


def _create_completer(completions: Callable[[], Completions]) -> "Completer":
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class ChatCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            word, found = completions().find(document.current_line_before_cursor)
            for name, description in found.items():
                yield Completion(name, start_position=-len(word), display_meta=description)

    return ChatCompleter()


def _create_key_bindings() -> "KeyBindings":
    """Enter sends the prompt, Alt-Enter starts a new line, Tab completes, Ctrl-C clears the prompt."""
    from prompt_toolkit.application import get_app
    from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
    from prompt_toolkit.filters import Condition, is_searching
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("enter", filter=~is_searching)
    def send(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        if is_unclosed(buffer.text) and buffer.document.current_line.strip():
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    @bindings.add("escape", "c-j")
    def start_new_line(event: "KeyPressEvent") -> None:
        event.current_buffer.newline(copy_margin=False)

    @bindings.add("tab")
    def complete(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.complete_next()
            return
        # Complete at once, not in the background: keys typed after Tab must follow the completed word.
        requested = CompleteEvent(completion_requested=True)
        found = [*buffer.completer.get_completions(buffer.document, requested)]
        if not found:
            return
        missing = get_common_complete_suffix(buffer.document, found)
        if len(found) == 1 and not found[0].text.endswith((" ", ".")):
            missing += " "
        if missing:
            buffer.insert_text(missing)
        else:
            buffer.start_completion()

    @bindings.add("c-c", filter=~is_searching & Condition(lambda: bool(get_app().current_buffer.text)))
    def clear(event: "KeyPressEvent") -> None:
        event.current_buffer.reset()

    return bindings
