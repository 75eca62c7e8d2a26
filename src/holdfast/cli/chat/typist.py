"""What the person types, line by line: with history and completion at a terminal, as it comes from a pipe."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from holdfast.cli.chat.history import recall, remember
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.mask import Mask

_LONGEST = 16 * 1024 * 1024

Words = Callable[[], Sequence[str]]
"""What can stand at the beginning of a line, as of now."""


class Typist(Protocol):
    """Whoever gives the lines."""

    def line(self, prompt: str) -> str | None:
        """The next line; None at the end. May raise KeyboardInterrupt."""
        ...

    def answer(self, question: str) -> str | None:
        """The same for a line that answers a question."""
        ...


class Pipe:
    """Lines of standard input."""

    def line(self, prompt: str) -> str | None:
        """The next line, without a prompt; what is no text is not worth failing for."""
        raw = sys.stdin.buffer.readline(_LONGEST)
        if len(raw) == _LONGEST and not raw.endswith(b"\n"):
            raise HoldfastError(codes.BAD_ARGUMENT, f"A line of the input has {_LONGEST} bytes or more.")
        return raw.decode(errors="replace").rstrip("\r\n") if raw else None

    def answer(self, question: str) -> str | None:
        """The same."""
        return self.line(question)


class Person:
    """Somebody at a terminal; what is typed at the prompt, and no answer, is at hand again by the arrow keys."""

    def __init__(self, again: Callable[[str], object]) -> None:
        self._again = again
        self.typed: list[str] = []

    def line(self, prompt: str) -> str | None:
        """Ask for a line; Ctrl-D is the end."""
        text = self.answer(prompt)
        if text is not None and text.strip():
            self._again(text)
            self.typed.append(text)
        return text

    def answer(self, question: str) -> str | None:
        """Ask for a line that is nobody's business later."""
        try:
            return input(question).encode(errors="replace").decode()
        except EOFError:
            return None


@contextlib.contextmanager
def person(history: Path, words: Words, mask: Callable[[], Mask]) -> Iterator[Person]:
    """Somebody at a terminal, with the lines of earlier chats at hand; theirs are kept as the mask leaves them."""
    try:
        import readline
    except ImportError:  # not on every system
        yield Person(lambda _: None)
        return
    completions: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            completions[:] = matching(readline.get_line_buffer(), text, words())
        return completions[state] if state < len(completions) else None

    for line in recall(history):
        readline.add_history(line)
    readline.set_auto_history(False)
    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    editline = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if editline else "tab: complete")
    typing = Person(readline.add_history)
    try:
        yield typing
    finally:
        readline.set_completer(None)
        remember(history, typing.typed, mask())


def matching(line: str, text: str, words: Sequence[str]) -> list[str]:
    """What the last word of the line can become, given whole lines that make sense."""
    before = line[: len(line) - len(text)]
    return sorted({word[len(before) :] for word in words if word.startswith(line)})
