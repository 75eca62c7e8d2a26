"""Parses a prompt into slash commands: one per line, except that the JSON of a call may span several lines."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.model.json import JsonObject
from holdfast.wire.strict_json import strip_strings

CALL = "/call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """A slash command and its argument. A line of other text has an empty name."""

    name: str
    argument: str = ""
    is_unclosed: bool = False
    """Whether the JSON of a call has a bracket that is not closed."""


def parse_commands(blocks: Sequence[JsonObject]) -> tuple[ParsedCommand, ...]:
    """Parse the commands of a prompt, in order."""
    return tuple(map(_parse_command, _group_lines(_text_lines(blocks))))


def _text_lines(blocks: Sequence[JsonObject]) -> Iterator[str]:
    for block in blocks:
        if block.get("type") == "text":
            yield from filter(None, map(str.strip, str(block.get("text", "")).split("\n")))


def _group_lines(lines: Iterable[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    depth = 0
    for line in lines:
        if groups and _continues_call(groups[-1], line, depth):
            groups[-1].append(line)
            depth += _count_open_brackets(line)
        else:
            groups.append([line])
            depth = _count_open_brackets(line)
    return groups


def _continues_call(group: Sequence[str], line: str, depth: int) -> bool:
    """Whether a line continues the call in `group`. Commands begin with a slash; lines of JSON never do."""
    words = group[0].split()
    if words[0] != CALL or line.startswith("/"):
        return False
    return depth > 0 or (len(group) == 1 and len(words) == 2 and line.startswith("{"))


def _count_open_brackets(line: str) -> int:
    """Count the brackets that a line opens minus those that it closes. JSON strings do not span lines."""
    bare = strip_strings(line.encode(errors="replace"))
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


def _parse_command(group: Sequence[str]) -> ParsedCommand:
    if not group[0].startswith("/"):
        return ParsedCommand(name="", argument=group[0])
    command, *rest = "\n".join(group).split(maxsplit=1)
    return ParsedCommand(
        name=command,
        argument="".join(rest),
        is_unclosed=command == CALL and sum(map(_count_open_brackets, group)) > 0,
    )
