"""Import servers from the config files of other MCP clients."""

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.resolve.command_words import runs_relative_script
from holdfast.resolve.json_with_comments import decode_json_with_comments
from holdfast.wire.strict_json import StrictJsonError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientApp:
    """An MCP client whose servers can be imported."""

    title: str
    linux: tuple[str, ...]
    """Its config files on Linux, relative to the home folder."""
    macos: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    """Where the servers are in a config file, as paths of keys. `*` stands for the folder of a project."""

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
    """A server from another client's config, converted to Holdfast's format, with remarks for the user."""

    name: str
    entry: JsonObject
    remarks: tuple[str, ...] = ()
    problem: str = ""
    """Why it must not be imported; empty if it may be."""


def read_servers(text: bytes, app: ClientApp, path: Path) -> tuple[ImportedServer, ...]:
    """All servers in another client's config file. If projects have servers of the same name, a number is added to the name."""
    try:
        content = decode_json_with_comments(text)
    except StrictJsonError as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{path} is not valid JSON: {error}. Correct the file, then import again."
        ) from None
    imported: dict[str, ImportedServer] = {}
    last_numbers: dict[str, int] = {}
    for keys in app.keys:
        for project, servers in _find_tables(content, keys):
            for name, entry in servers.items():
                if isinstance(entry, dict) and (project or name not in imported):
                    unique = _unique(name, imported, last_numbers)
                    imported[unique] = _convert_entry(unique, entry, project, app)
    return tuple(imported.values())


def _unique(name: str, taken: Collection[str], last_numbers: dict[str, int]) -> str:
    """The name, or the name with the next number that is free. `last_numbers` has the last number of each name."""
    unique = name
    while unique in taken:
        last_numbers[name] = last_numbers.get(name, 1) + 1
        unique = f"{name}-{last_numbers[name]}"
    return unique


def _find_tables(content: Json, keys: tuple[str, ...], project: str = "") -> Iterator[tuple[str, JsonObject]]:
    """The tables of servers, each with the folder of its project; an empty folder if the table is for all projects."""
    if not isinstance(content, dict):
        return
    if not keys:
        yield project, content
    elif keys[0] == "*":
        for folder, inner in content.items():
            yield from _find_tables(inner, keys[1:], folder)
    else:
        yield from _find_tables(content.get(keys[0]), keys[1:], project)


_KEPT_KEYS = ("command", "args", "env", "cwd", "url", "type", "headers", "disabled")
_INPUT = re.compile(r"\$\{input:([^}$]+)\}")
_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_WRITE_ABSOLUTE_PATH = (
    "so the server would run another program in each session's folder; write an absolute path"
)


def _convert_entry(name: str, entry: JsonObject, project: str, app: ClientApp) -> ImportedServer:
    remarks: list[str] = []
    kept = {key: _convert_value(entry[key], app, remarks) for key in _KEPT_KEYS if key in entry}
    if project and "command" in kept:
        kept.setdefault("cwd", project)
    if project:
        kept["folders"] = [os.path.realpath(project)]
        remarks.append(f"only for sessions in {project}, as in that client")
    dropped = [key for key in entry if key not in _KEPT_KEYS]
    if dropped:
        remarks.append(f"these keys were not imported: {', '.join(sorted(dropped))}")
    return ImportedServer(
        name=name,
        entry=kept,
        remarks=tuple(dict.fromkeys(remarks)),
        problem=_why_program_depends_on_folder(kept),
    )


def _why_program_depends_on_folder(entry: JsonObject) -> str:
    """Why the session's folder would decide which program the server runs; empty if it would not."""
    command, args, cwd = entry.get("command"), entry.get("args"), entry.get("cwd")
    if not isinstance(command, str) or not command:
        return ""
    if cwd is not None:
        is_fixed = isinstance(cwd, str) and cwd.startswith(("/", "${HOME}/"))
        return "" if is_fixed else f'its "cwd" is not an absolute path, {_WRITE_ABSOLUTE_PATH}'
    words = [command, *(word for word in (args if isinstance(args, list) else ()) if isinstance(word, str))]
    if not runs_relative_script(words):
        return ""
    return f"its program has a relative path, {_WRITE_ABSOLUTE_PATH}"


def _convert_value(value: Json, app: ClientApp, remarks: list[str]) -> Json:
    """Convert the references to variables in a value. Append to `remarks` what the user has to do."""
    match value:
        case str():
            return _convert_text(value, app, remarks)
        case list():
            return [_convert_value(inner, app, remarks) for inner in value]
        case dict():
            return {key: _convert_value(inner, app, remarks) for key, inner in value.items()}
        case _:
            return value


def _convert_text(text: str, app: ClientApp, remarks: list[str]) -> str:
    def replace_input(matched: re.Match[str]) -> str:
        variable = re.sub(r"[^A-Z0-9]+", "_", matched[1].upper()).strip("_")
        remarks.append(f"set the environment variable {variable}: {app.title} asked you for this value")
        return f"${{{variable}}}"

    return _ENV.sub(r"${\1}", _INPUT.sub(replace_input, text)).replace("${userHome}", "${HOME}")
