"""Make text from servers, models and files safe to print: no control or invisible character reaches the terminal."""

import json
import unicodedata
from collections.abc import Iterator

from holdfast.model.json import Json, JsonObject

SUMMARY_LENGTH = 100
CONTINUATION = "    ↪ "
_MIN_WIDTH = 40


def replace_unprintable(text: str) -> str:
    """Replace each control or invisible character with �."""
    return (
        text
        if text.isprintable()
        else "".join(character if character.isprintable() else "�" for character in text)
    )


def escape_unprintable(text: str) -> str:
    """Replace each control or invisible character with its JSON escape, such as `\\u001b`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )


def quote_lines(text: str) -> str:
    """Replace control characters, and begin each line after the first with a bar."""
    first, *rest = text.splitlines() or [""]
    return "\n  | ".join([replace_unprintable(first), *map(replace_unprintable, rest)])


def summarize_arguments(arguments: JsonObject, width: int = SUMMARY_LENGTH) -> str:
    """A call's arguments on one line, truncated to `width` cells."""
    return shorten(escape_unprintable(json.dumps(arguments, ensure_ascii=False)), width)


def format_arguments(arguments: JsonObject, width: int) -> list[str]:
    """All arguments of a call, in lines of at most `width` cells."""
    return [
        piece
        for name, value in arguments.items()
        for line in _argument_lines(name, value)
        for piece in wrap(line, width)
    ]


def wrap(line: str, width: int) -> Iterator[str]:
    """Wrap a line of printable characters. Each continuation begins with an arrow, so that no text can imitate a line of ours."""
    width = max(width, _MIN_WIDTH)
    end = _fitting(line, 0, width)
    yield line[:end]
    while end < len(line):
        start, end = end, _fitting(line, end, width - len(CONTINUATION))
        yield f"{CONTINUATION}{line[start:end]}"


def shorten(text: str, width: int) -> str:
    """The beginning of a text that has at most this many cells; with … at the end if it is not complete."""
    return text if _fitting(text, 0, width) == len(text) else text[: _fitting(text, 0, width - 1)] + "…"


def _fitting(text: str, start: int, width: int) -> int:
    """The end of the longest part of a text, from `start`, that fits into this many cells of a terminal."""
    for end, char in enumerate(text[start : start + width + 1], start):
        width -= _cells(char)
        if width < 0:
            return end
    return len(text)


def _cells(char: str) -> int:
    """The most cells that a terminal uses for a character. Some terminals use two for ambiguous ones."""
    return 2 if unicodedata.east_asian_width(char) in ("W", "F", "A") else 1


def _argument_lines(name: str, value: Json) -> Iterator[str]:
    shown = name if name.isidentifier() else json.dumps(name, ensure_ascii=False)
    if isinstance(value, str) and "\n" in value:
        yield f"    {escape_unprintable(shown)}:"
        yield from (f"    | {escape_unprintable(line)}" for line in value.split("\n"))
    else:
        first, *rest = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
        yield f"    {escape_unprintable(shown)}: {escape_unprintable(first)}"
        yield from (f"    {escape_unprintable(line)}" for line in rest)
