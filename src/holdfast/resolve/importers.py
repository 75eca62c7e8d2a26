"""Servers that people wrote down for other programs, read into our own words."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.resolve.load import read_json
from holdfast.wire.strict import Unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that keeps a list of servers: where, from the home folder, and under which keys."""

    title: str
    linux: tuple[str, ...]
    macos: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]

    def files(self, home: Path) -> tuple[Path, ...]:
        """Where its lists are on this machine."""
        return tuple(home / path for path in (self.macos if sys.platform == "darwin" else self.linux))


_MAC = "Library/Application Support"
PROGRAMS: Mapping[str, Program] = {
    "claude-desktop": Program(
        title="Claude Desktop",
        linux=(".config/Claude/claude_desktop_config.json",),
        macos=(f"{_MAC}/Claude/claude_desktop_config.json",),
        keys=(("mcpServers",),),
    ),
    "claude-code": Program(
        title="Claude Code",
        linux=(".claude.json",),
        macos=(".claude.json",),
        keys=(("mcpServers",), ("projects", "*", "mcpServers")),
    ),
    "cursor": Program(
        title="Cursor", linux=(".cursor/mcp.json",), macos=(".cursor/mcp.json",), keys=(("mcpServers",),)
    ),
    "vscode": Program(
        title="VS Code",
        linux=(".config/Code/User/mcp.json", ".config/Code/User/settings.json"),
        macos=(f"{_MAC}/Code/User/mcp.json", f"{_MAC}/Code/User/settings.json"),
        keys=(("servers",), ("mcp", "servers"), ("mcpServers",)),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A server of another program: its entry in our words, and what there is to know about it."""

    name: str
    entry: JsonObject
    remarks: tuple[str, ...] = ()


def read_foreign(text: bytes, program: Program, path: Path) -> tuple[Foreign, ...]:
    """Every server in another program's file; a name that comes twice is kept once, the first time."""
    try:
        content = read_json(text)
    except Unreadable as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{path} cannot be read as JSON: {error}.") from None
    found: dict[str, Foreign] = {}
    for keys in program.keys:
        for servers in _at(content, keys):
            for name, entry in servers.items():
                if isinstance(entry, dict) and name not in found:
                    found[name] = _in_our_words(name, entry)
    return tuple(found.values())


def _at(content: Json, keys: tuple[str, ...]) -> list[JsonObject]:
    places = [content]
    for key in keys:
        objects = [place for place in places if isinstance(place, dict)]
        places = [
            inner for place in objects for inner in (place.values() if key == "*" else [place.get(key)])
        ]
    return [place for place in places if isinstance(place, dict)]


_OURS = ("command", "args", "env", "url", "type", "headers", "disabled")
_INPUT = re.compile(r"\$\{input:([^}]+)\}")
_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def _in_our_words(name: str, entry: JsonObject) -> Foreign:
    remarks: list[str] = []
    kept = {key: _translated(entry[key], remarks) for key in _OURS if key in entry}
    left = [key for key in entry if key not in _OURS]
    if left:
        remarks.append(f"left out: {', '.join(sorted(left))}")
    return Foreign(name=name, entry=kept, remarks=tuple(dict.fromkeys(remarks)))


def _translated(value: Json, remarks: list[str]) -> Json:
    match value:
        case str():
            return _text(value, remarks)
        case list():
            return [_translated(inner, remarks) for inner in value]
        case dict():
            return {key: _translated(inner, remarks) for key, inner in value.items()}
        case _:
            return value


def _text(text: str, remarks: list[str]) -> str:
    def asked(found: re.Match[str]) -> str:
        variable = re.sub(r"[^A-Z0-9]+", "_", found[1].upper()).strip("_")
        remarks.append(f"set the variable {variable}: the editor asked for it")
        return f"${{{variable}}}"

    return _ENV.sub(r"${\1}", _INPUT.sub(asked, text)).replace("${userHome}", "${HOME}")
