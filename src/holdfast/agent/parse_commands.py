"""Parses a prompt into slash commands: one per line, except that the JSON of a call may span several lines."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.agent.command_list import COMMAND_NAMES
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.strict_json import strip_strings

CALL = "/call"
MAX_COMMANDS = 100
MAX_LINES = 20_000
_MAX_DESCRIBED = 50_000  # characters of arguments in which an open bracket is searched for


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """A slash command and its argument, or a line of other text."""

    slash_name: str
    """The name with its slash, such as `/tools`. Empty for other text, which is then the argument."""
    argument: str = ""
    is_unclosed: bool = False
    """Whether the JSON of a call has a bracket that is not closed."""


def is_command(blocks: Sequence[JsonObject]) -> bool:
    """Return whether a prompt begins with a slash command. Other prompts are for the model, if the session has one."""
    text = next((str(block.get("text", "")) for block in blocks if block.get("type") == "text"), "")
    words = text.lstrip()[:40].split(maxsplit=1)
    return bool(words) and words[0] in COMMAND_NAMES


def parse_commands(blocks: Sequence[JsonObject]) -> tuple[ParsedCommand, ...]:
    """Parse the commands of a prompt, in order. Raise TOO_LARGE if there are too many commands or lines."""
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    if sum(text.count("\n") + 1 for text in texts) > MAX_LINES:
        raise HoldfastError(
            codes.TOO_LARGE,
            f"The prompt has more than {MAX_LINES} lines. Nothing was called. Send it in several prompts.",
        )
    groups = _group_lines(_text_lines(texts))
    if sum(group[0].startswith("/") for group in groups) > MAX_COMMANDS:
        raise HoldfastError(
            codes.TOO_LARGE,
            f"The prompt has more than {MAX_COMMANDS} commands. Nothing was called. Send them in several prompts.",
        )
    return tuple(map(_parse_command, groups))


def _text_lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from filter(None, map(str.strip, text.split("\n")))


def _group_lines(lines: Iterable[str]) -> list[list[str]]:
    """Group each command with the lines that continue it. A command begins with a slash; a line of JSON never does."""
    groups: list[list[str]] = []
    depth = 0
    is_call = False  # whether the last group is a call
    lacks_arguments = False  # whether that call has no JSON yet
    for line in lines:
        continues = is_call and (depth > 0 or (lacks_arguments and line.startswith("{")))
        if continues and not line.startswith("/"):
            groups[-1].append(line)
            depth += _count_open_brackets(line)
            lacks_arguments = False
        else:
            groups.append([line])
            words = line.split(maxsplit=2)
            is_call, lacks_arguments = words[0] == CALL, len(words) == 2
            depth = _count_open_brackets(line) if is_call else 0
    return groups


def _count_open_brackets(line: str) -> int:
    """Count the brackets that a line opens, minus those that it closes, outside of strings. JSON strings do not span lines."""
    bare = strip_strings(line.encode(errors="replace"))
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


def describe_unclosed(argument: str) -> str:
    """Name the last bracket that is not closed in the arguments of a call, and its line if the arguments have several lines."""
    if len(argument) > _MAX_DESCRIBED:
        return "a bracket"
    still_open: list[tuple[str, int]] = []
    lines = argument.split("\n")
    for number, line in enumerate(lines, 1):
        for byte in strip_strings(line.encode(errors="replace")):
            if byte in b"{[":
                still_open.append((chr(byte), number))
            elif byte in b"}]" and still_open:
                still_open.pop()
    if not still_open:
        return "a bracket"
    bracket, number = still_open[-1]
    return f"the `{bracket}` in line {number}" if len(lines) > 1 else f"a `{bracket}`"


def _parse_command(group: Sequence[str]) -> ParsedCommand:
    if not group[0].startswith("/"):
        return ParsedCommand(slash_name="", argument=group[0])
    command, *rest = "\n".join(group).split(maxsplit=1)
    return ParsedCommand(
        slash_name=command,
        argument="".join(rest),
        is_unclosed=command == CALL and sum(map(_count_open_brackets, group)) > 0,
    )
