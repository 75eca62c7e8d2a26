"""Import servers from the config files of other MCP clients."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.resolve.json_with_comments import read_json
from holdfast.wire.strict_json import StrictJsonError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientApp:
    """An MCP client whose servers can be imported."""

    title: str
    linux: tuple[str, ...]
    """Its config files on Linux, relative to the home folder."""
    macos: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    """The paths of keys that lead to servers in a config file; `*` stands for any key."""

    def files(self, home: Path) -> tuple[Path, ...]:
        """Its config files on this platform, whether they exist or not."""
        return tuple(home / path for path in (self.macos if sys.platform == "darwin" else self.linux))


_MACOS_FOLDER = "Library/Application Support"
CLIENT_APPS: Mapping[str, ClientApp] = {
    "claude-desktop": ClientApp(
        title="Claude Desktop",
        linux=(".config/Claude/claude_desktop_config.json",),
        macos=(f"{_MACOS_FOLDER}/Claude/claude_desktop_config.json",),
        keys=(("mcpServers",),),
    ),
    "claude-code": ClientApp(
        title="Claude Code",
        linux=(".claude.json",),
        macos=(".claude.json",),
        keys=(("mcpServers",), ("projects", "*", "mcpServers")),
    ),
    "cursor": ClientApp(
        title="Cursor", linux=(".cursor/mcp.json",), macos=(".cursor/mcp.json",), keys=(("mcpServers",),)
    ),
    "vscode": ClientApp(
        title="VS Code",
        linux=(".config/Code/User/mcp.json", ".config/Code/User/settings.json"),
        macos=(f"{_MACOS_FOLDER}/Code/User/mcp.json", f"{_MACOS_FOLDER}/Code/User/settings.json"),
        keys=(("servers",), ("mcp", "servers"), ("mcpServers",)),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedServer:
    """A server of another client, converted to Holdfast's format, with remarks for the user."""

    name: str
    entry: JsonObject
    remarks: tuple[str, ...] = ()


def read_servers(text: bytes, app: ClientApp, path: Path) -> tuple[ImportedServer, ...]:
    """All servers in another client's config file. If a name occurs twice, the first server is kept."""
    try:
        content = read_json(text)
    except StrictJsonError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{path} is not valid JSON: {error}.") from None
    found: dict[str, ImportedServer] = {}
    for keys in app.keys:
        for servers in _find_tables(content, keys):
            for name, entry in servers.items():
                if isinstance(entry, dict) and name not in found:
                    found[name] = _convert_entry(name, entry)
    return tuple(found.values())


def _find_tables(content: Json, keys: tuple[str, ...]) -> list[JsonObject]:
    values = [content]
    for key in keys:
        objects = [value for value in values if isinstance(value, dict)]
        values = [
            inner for table in objects for inner in (table.values() if key == "*" else [table.get(key)])
        ]
    return [value for value in values if isinstance(value, dict)]


_KEPT_KEYS = ("command", "args", "env", "url", "type", "headers", "disabled")
_INPUT = re.compile(r"\$\{input:([^}$]+)\}")
_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def _convert_entry(name: str, entry: JsonObject) -> ImportedServer:
    remarks: list[str] = []
    kept = {key: _convert_value(entry[key], remarks) for key in _KEPT_KEYS if key in entry}
    dropped = [key for key in entry if key not in _KEPT_KEYS]
    if dropped:
        remarks.append(f"these keys were not imported: {', '.join(sorted(dropped))}")
    return ImportedServer(name=name, entry=kept, remarks=tuple(dict.fromkeys(remarks)))


def _convert_value(value: Json, remarks: list[str]) -> Json:
    match value:
        case str():
            return _convert_text(value, remarks)
        case list():
            return [_convert_value(inner, remarks) for inner in value]
        case dict():
            return {key: _convert_value(inner, remarks) for key, inner in value.items()}
        case _:
            return value


def _convert_text(text: str, remarks: list[str]) -> str:
    def replace_input(found: re.Match[str]) -> str:
        variable = re.sub(r"[^A-Z0-9]+", "_", found[1].upper()).strip("_")
        remarks.append(f"set the environment variable {variable}: the other program asked for its value")
        return f"${{{variable}}}"

    return _ENV.sub(r"${\1}", _INPUT.sub(replace_input, text)).replace("${userHome}", "${HOME}")
