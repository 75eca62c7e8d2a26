"""Make text from servers, models and files safe to print: no control or invisible character reaches the terminal."""

import json
from collections.abc import Iterator

from holdfast.model.json import Json, JsonObject

SUMMARY_LENGTH = 100
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


def summarize_arguments(arguments: JsonObject) -> str:
    """A call's arguments on one line, truncated to `SUMMARY_LENGTH` characters."""
    line = _one_line(arguments)
    return line if len(line) <= SUMMARY_LENGTH else line[: SUMMARY_LENGTH - 1] + "…"


def format_arguments(arguments: JsonObject, width: int) -> list[str]:
    """All arguments of a call, in lines of at most `width` characters; no lines if the summary is complete."""
    if len(_one_line(arguments)) <= SUMMARY_LENGTH:
        return []
    return [
        piece
        for name, value in arguments.items()
        for line in _argument_lines(name, value)
        for piece in _wrap(line, max(width, _MIN_WIDTH))
    ]


def _argument_lines(name: str, value: Json) -> Iterator[str]:
    shown = name if name.isidentifier() else json.dumps(name, ensure_ascii=False)
    if isinstance(value, str) and "\n" in value:
        yield f"    {escape_unprintable(shown)}:"
        yield from (f"    | {escape_unprintable(line)}" for line in value.split("\n"))
    else:
        first, *rest = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
        yield f"    {escape_unprintable(shown)}: {escape_unprintable(first)}"
        yield from (f"    {escape_unprintable(line)}" for line in rest)


def _wrap(line: str, width: int) -> Iterator[str]:
    """Wrap a long line. Each continuation begins with an arrow, so that no argument can imitate a prompt."""
    yield line[:width]
    step = width - 6
    for start in range(width, len(line), step):
        yield f"    ↪ {line[start : start + step]}"


def _one_line(arguments: JsonObject) -> str:
    return escape_unprintable(json.dumps(arguments, ensure_ascii=False))
