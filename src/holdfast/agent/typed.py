"""What a person typed, as commands: one to a line, but for a call whose JSON goes on over several."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.model.json import JsonObject
from holdfast.wire.strict import outside_strings

CALL = "/call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A command and what follows it; words that are no command have none."""

    command: str
    rest: str = ""
    open: bool = False
    """Whether its JSON is not closed where it ends."""


def typed(blocks: Sequence[JsonObject]) -> tuple[Typed, ...]:
    """The commands of a prompt, in order."""
    return tuple(map(_typed, _grouped(_lines(blocks))))


def _lines(blocks: Sequence[JsonObject]) -> Iterator[str]:
    for block in blocks:
        if block.get("type") == "text":
            yield from filter(None, map(str.strip, str(block.get("text", "")).split("\n")))


def _grouped(lines: Iterable[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    depth = 0
    for line in lines:
        if groups and _goes_on(groups[-1], line, depth):
            groups[-1].append(line)
            depth += _depth(line)
        else:
            groups.append([line])
            depth = _depth(line)
    return groups


def _goes_on(group: Sequence[str], line: str, depth: int) -> bool:
    """Whether a line belongs to the call before it; JSON has none that begins with a slash, commands have."""
    words = group[0].split()
    if words[0] != CALL or line.startswith("/"):
        return False
    return depth > 0 or (len(group) == 1 and len(words) == 2 and line.startswith("{"))


def _depth(line: str) -> int:
    """How many brackets more a line opens than it closes; a string of JSON ends where its line does."""
    bare = outside_strings(line.encode(errors="replace"))
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


def _typed(group: Sequence[str]) -> Typed:
    if not group[0].startswith("/"):
        return Typed(command="", rest=group[0])
    command, *rest = "\n".join(group).split(maxsplit=1)
    return Typed(command=command, rest="".join(rest), open=command == CALL and sum(map(_depth, group)) > 0)
