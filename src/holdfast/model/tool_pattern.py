"""Patterns of tools, such as `shop.*`, in permission rules and in lists of tools."""

import re
from dataclasses import dataclass
from typing import cast

MAX_PATTERNS = 1000
_MAX_LENGTH = 300  # characters of a pattern
_SHOWN = 80  # characters of a pattern in a message
_EXPECTED = 'must be a list of patterns such as "git.push" or "files.*"'
_QUOTED = re.compile(r'"([^"]+)"(?:\.(.*))?')
# With other characters, the author probably means another kind of pattern.
_PLAIN_SERVER = re.compile(r"[\w @/:*-]+")
_TOOL = re.compile(r"[A-Za-z0-9_./*-]+")  # what a tool's name may contain, and *


@dataclass(frozen=True, slots=True)
class ToolPattern:
    """A pattern for the names of a server and its tool. Each is stored as the strings between its `*`s: `git_*` is `("git_", "")`."""

    server: tuple[str, ...]
    tool: tuple[str, ...]

    def matches(self, server: str, tool: str) -> bool:
        """Whether both names match. Upper and lower case differ. The time is linear in the length of the names."""
        return _matches(self.tool, tool) and _matches(self.server, server)

    def matches_server(self, server: str) -> bool:
        """Whether the pattern can match a tool of this server."""
        return _matches(self.server, server)

    def __str__(self) -> str:
        server, tool = "*".join(self.server), "*".join(self.tool)
        is_plain = _PLAIN_SERVER.fullmatch(server) and (len(self.server) > 1 or "*" not in server)
        if is_plain and ("." not in tool or server == "*"):
            return f"{server}.{tool}"
        return f'"{server}".{tool}'


def parse_tool_pattern(text: str) -> ToolPattern:
    """Parse `server.tool`, where `*` stands for any characters of a name; a server alone stands for all of its tools.

    A server whose name contains a dot, or another character that names rarely have, is written in quotation marks:
    `"my.server".tool`. In quotation marks, `*` is an ordinary character. Raise ValueError if the pattern is invalid.
    """
    text = text.strip()
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"{text[:_SHOWN]!r}… has more than {_MAX_LENGTH} characters")
    if not text.isprintable():
        raise ValueError(f"{text[:_SHOWN]!r} has an invisible character")
    if quoted := _QUOTED.fullmatch(text):
        server, tool = (quoted[1],), quoted[2]
    else:
        server, tool = _split_plain(text)
    tool = "*" if tool is None else tool
    if not _TOOL.fullmatch(tool):
        raise ValueError(
            f"the tool in {text[:_SHOWN]!r} must consist of letters, digits and _ . / - characters, and * for any of them"
        )
    return ToolPattern(server=server, tool=tuple(tool.split("*")))


def parse_tool_patterns(raw: object) -> tuple[ToolPattern, ...]:
    """Parse a list of patterns. The message of the ValueError is meant to follow the name of the setting."""
    patterns = cast("list[object]", raw) if isinstance(raw, list) else [None]  # None is refused below
    if len(patterns) > MAX_PATTERNS:
        raise ValueError(f"must be a list of at most {MAX_PATTERNS} patterns")
    parsed: list[ToolPattern] = []
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise ValueError(_EXPECTED)
        try:
            parsed.append(parse_tool_pattern(pattern))
        except ValueError as error:
            raise ValueError(f"{_EXPECTED} ({error})") from None
    return tuple(parsed)


def name_in_patterns(name: str) -> str:
    """For a name that a model uses, such as `files__read`, the name in patterns: `files.read`. Empty for other names."""
    server, _, tool = name.removeprefix("mcp__").partition("__")  # some clients begin each name with mcp__
    return f"{server}.{tool}" if server and tool and "." not in name else ""


def _split_plain(text: str) -> tuple[tuple[str, ...], str | None]:
    """The server of a pattern without quotation marks, as the strings between its `*`s, and the tool; None for all tools."""
    server, dot, tool = text.partition(".")
    server = server.rstrip()
    if not _PLAIN_SERVER.fullmatch(server):
        if not server:
            raise ValueError(f"{text[:_SHOWN]!r} has no server; write * for every server")
        raise ValueError(
            f"{text[:_SHOWN]!r} has an unusual character; if it belongs to the server's name, write the name in"
            ' quotation marks: "name".tool'
        )
    if not dot and (meant := name_in_patterns(server)):
        raise ValueError(
            f"{text[:_SHOWN]!r} is a name as models see it; write {meant[:_SHOWN]!r} or, for all tools of a server with this name,"
            f" {server[:_SHOWN] + '.*'!r}"
        )
    if "." in tool and server != "*":
        # Names of servers and of tools may contain dots. A rule with the wrong split would match nothing.
        fix = (
            "write * in place of the other dots"
            if "*" in server
            else f'write the name in quotation marks: "{server}".{tool[:_SHOWN]}'
        )
        raise ValueError(f"it is not clear which dot of {text[:_SHOWN]!r} ends the server's name; {fix}")
    return tuple(server.split("*")), tool if dot else None


def _matches(texts: tuple[str, ...], name: str) -> bool:
    """Whether the name consists of these strings in this order, with anything between them."""
    first, last = texts[0], texts[-1]
    if len(texts) == 1:
        return name == first
    if not name.startswith(first) or not name.endswith(last):
        return False
    position, end = len(first), len(name) - len(last)
    for text in texts[1:-1]:
        found = name.find(text, position, end)
        if found < 0:
            return False
        position = found + len(text)
    return position <= end
