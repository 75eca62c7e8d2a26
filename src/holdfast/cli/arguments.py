"""A call's arguments in front of a person: nothing in them moves the cursor or hides a letter."""

import json
from collections.abc import Iterator

from holdfast.cli.table import spelled
from holdfast.model.json import Json, JsonObject

SHORT = 100
_NARROWEST = 40


def in_short(arguments: JsonObject) -> str:
    """The arguments on one line, as far as they go."""
    line = _on_one_line(arguments)
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"


def in_full(arguments: JsonObject, width: int) -> list[str]:
    """All of the arguments, in lines of at most this width; none when they are all there in short."""
    if len(_on_one_line(arguments)) <= SHORT:
        return []
    return [
        piece
        for name, value in arguments.items()
        for line in _lines(name, value)
        for piece in _folded(line, max(width, _NARROWEST))
    ]


def _lines(name: str, value: Json) -> Iterator[str]:
    shown = name if name.isidentifier() else json.dumps(name, ensure_ascii=False)
    if isinstance(value, str) and "\n" in value:
        yield f"    {spelled(shown)}:"
        yield from (f"    | {spelled(line)}" for line in value.split("\n"))
    else:
        first, *rest = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
        yield f"    {spelled(shown)}: {spelled(first)}"
        yield from (f"    {spelled(line)}" for line in rest)


def _folded(line: str, width: int) -> Iterator[str]:
    """A long line goes on behind a mark: what stands in it never begins a line of the screen."""
    yield line[:width]
    room = width - 6
    for start in range(width, len(line), room):
        yield f"    ↪ {line[start : start + room]}"


def _on_one_line(arguments: JsonObject) -> str:
    return spelled(json.dumps(arguments, ensure_ascii=False))
