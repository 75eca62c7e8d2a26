"""Prepares text for a terminal: replaces control and invisible characters, wraps and shortens lines."""

import json
import shutil
import unicodedata
from collections.abc import Iterator

from holdfast.model.json import Json, JsonObject
from holdfast.model.visible_text import replace_invisible, split_at_emoji_joiners

SUMMARY_CELLS = 100
WRAP_MARK = "    ↪ "
_JOINER = "\u200d"  # joins two emoji into one
_JOINER_PARTS = (_JOINER, "\ufe0f")  # U+FE0F, which may precede a joiner, shows a character as an emoji
_ANSWER_CELLS = 3  # a letter, the cursor after it, and a column that stays empty
_MIN_WIDTH = 40  # a narrower terminal wraps the rows again


def replace_unprintable(text: str) -> str:
    """Replace each control or invisible character with �."""
    return replace_invisible(text, lambda _: "�")


def printable(text: str, before: str = "") -> str:
    """Like `replace_unprintable`, but joined emoji stay joined. Not for text that a person approves: a joiner may be invisible.

    `before` is the last character before this piece of a stream.
    """
    pieces = split_at_emoji_joiners(before + text)
    return _JOINER.join(map(replace_unprintable, pieces))[len(before) :]


def escape_unprintable(text: str) -> str:
    """Replace each control or invisible character with its JSON escape, such as `\\u001b`."""
    return replace_invisible(text, lambda character: json.dumps(character)[1:-1])


def quote_lines(text: str) -> str:
    """Replace control characters, and put a bar (|) in front of each line except the first."""
    first, *rest = text.splitlines() or [""]
    return "\n  | ".join([replace_unprintable(first), *map(replace_unprintable, rest)])


def summarize_arguments(arguments: JsonObject, width: int = SUMMARY_CELLS) -> str:
    """Return a call's arguments on one line, truncated to `width` cells."""
    return shorten(escape_unprintable(json.dumps(arguments, ensure_ascii=False)), width)


def format_arguments(arguments: JsonObject, width: int) -> list[str]:
    """Return all arguments of a call, in lines of at most `width` cells."""
    return [
        piece
        for name, value in arguments.items()
        for line in _argument_lines(name, value)
        for piece in wrap(line, width)
    ]


def wrap(line: str, width: int, column: int = 0) -> Iterator[str]:
    """Wrap a line of printable characters, between words if possible. Its first row begins at `column`.

    Each row except the first begins with `WRAP_MARK`, so that no text can imitate a new line.
    """
    width = max(width, _MIN_WIDTH)
    end = _end_of_words(line, 0, max(width - column, 0))
    yield line[:end]
    while end < len(line):
        start, end = end, _end_of_words(line, end, width - len(WRAP_MARK))
        yield f"{WRAP_MARK}{line[start:end]}"


def wrap_question(text: str, choices: str = "") -> str:
    """A question and its choices, such as "[y]es or [n]o? ", on one row if they fit with the answer; else the choices get their own row."""
    width = shutil.get_terminal_size().columns - _ANSWER_CELLS
    if choices and cell_width(f"{text} {choices}") <= width:
        return f"{text} {choices}"
    return "\n".join((*wrap(text, width), *(wrap(f"  {choices}", width) if choices else ())))


def _end_of_words(text: str, start: int, width: int) -> int:
    """Like `_end_of_row`, but the row ends after a space, if there is one in its second half."""
    end = _end_of_row(text, start, width)
    if end == len(text) or text[end - 1] == " ":
        return end
    space = text.rfind(" ", (start + end) // 2, end)
    return end if space < 0 else space + 1


def shorten(text: str, width: int) -> str:
    """The text if it fits into `width` cells of a terminal; else its beginning and an ellipsis (…)."""
    if _end_of_row(text, 0, width) == len(text):
        return text
    return text[: _end_of_row(text, 0, width - 1)] + "…"


def cell_width(text: str) -> int:
    """The number of terminal cells that a text needs."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _end_of_row(text: str, start: int, width: int) -> int:
    """The end of the row that begins at `start` and has at most `width` cells."""
    if text.isascii() and width >= 0:
        return min(start + width, len(text))
    for end, char in enumerate(text[start : start + width + 1], start):
        width -= _cells(char)
        if width < 0:
            return _before_joined(text, start, end)
    return len(text)


def _before_joined(text: str, start: int, end: int) -> int:
    """Where to end the row instead of at `end`, so that no joined emoji is cut in two, unless it fills the whole row."""
    first = end
    while start < first and (text[first] in _JOINER_PARTS or text[first - 1] == _JOINER):
        first -= 1
    if first > start:
        return first
    return end - 1 if end - 1 > start and text[end - 1] == _JOINER else end


def _cells(char: str) -> int:
    """The number of cells that a character needs. If terminals differ, the larger number."""
    if char == _JOINER:
        return 0
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
