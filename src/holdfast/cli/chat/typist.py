"""What the person types, line by line: with history and completion at a terminal, as it comes from a pipe."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

_LONGEST_HISTORY = 1000

Words = Callable[[], Sequence[str]]
"""What can stand at the beginning of a line, as of now."""


class Typist(Protocol):
    """Whoever gives the lines."""

    def line(self, prompt: str) -> str | None:
        """The next line; None at the end. May raise KeyboardInterrupt."""
        ...


class Pipe:
    """Lines of standard input."""

    def line(self, prompt: str) -> str | None:
        """The next line, without a prompt."""
        text = sys.stdin.readline()
        return text.rstrip("\n") if text else None


class Person:
    """Somebody at a terminal."""

    def line(self, prompt: str) -> str | None:
        """Ask for a line; Ctrl-D is the end."""
        try:
            return input(prompt)
        except EOFError:
            return None


@contextlib.contextmanager
def person(history: Path, words: Words) -> Iterator[Person]:
    """Somebody at a terminal, with the lines of earlier chats at hand."""
    try:
        import readline
    except ImportError:  # not on every system
        yield Person()
        return
    completions: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            completions[:] = matching(readline.get_line_buffer(), text, words())
        return completions[state] if state < len(completions) else None

    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_LONGEST_HISTORY)
    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    editline = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if editline else "tab: complete")
    try:
        yield Person()
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            history.touch(mode=0o600)
            readline.write_history_file(history)


def matching(line: str, text: str, words: Sequence[str]) -> list[str]:
    """What the last word of the line can become, given whole lines that make sense."""
    before = line[: len(line) - len(text)]
    return sorted({word[len(before) :] for word in words if word.startswith(line)})
