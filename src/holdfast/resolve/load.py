"""Stage one: read the entries in config files and in the client's request, each with its source."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.server import Source
from holdfast.resolve.server_entry import ServerEntry
from holdfast.wire.strict_json import StrictJsonError, check_json

CLIENT_ORIGIN = "the client's request"
PROJECT_FILE = ".mcp.json"
_MAX_BYTES = 4 * 1024 * 1024
_COMMENT = re.compile(rb'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(rb'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEntries:
    """The entries that were read, and refusals of files and entries that could not be read."""

    entries: tuple[ServerEntry, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The secrets in all entries, including entries that are refused later. They must be masked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The content of a config file, or why it could not be read (`problem`)."""

    source: Source
    path: str
    text: bytes = field(default=b"", repr=False)
    problem: str = ""


def load(files: Iterable[ConfigFile], client_servers: Iterable[Json] = ()) -> LoadedEntries:
    """Read all entries, in order of trust: the host's, the user's, the project's, the client's."""
    parts = [_from_file(file) for file in files]
    parts.append(_from_client(tuple(client_servers)))
    order = list(Source)
    entries = sorted(
        (entry for part in parts for entry in part.entries), key=lambda entry: order.index(entry.source)
    )
    return LoadedEntries(
        entries=tuple(entries), refusals=tuple(refusal for part in parts for refusal in part.refusals)
    )


def _from_file(file: ConfigFile) -> LoadedEntries:
    def refused(reason: str) -> LoadedEntries:
        return LoadedEntries(refusals=(Refusal(server=file.path, stage=Stage.LOAD, reason=reason),))

    if file.problem:
        return refused(file.problem)
    try:
        content = read_json(file.text)
    except StrictJsonError as error:
        return refused(
            f"It is not valid JSON: {error}. Its servers are left out until the file is corrected."
        )
    servers = content.get("mcpServers", content.get("servers", {})) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        return refused(
            '"mcpServers" is missing or not an object. Write {"mcpServers": {"name": {"command": "…"}}}.'
        )
    return LoadedEntries(
        entries=tuple(
            ServerEntry(name=name, source=file.source, origin=file.path, value=value)
            for name, value in servers.items()
        )
    )


def _from_client(client_servers: tuple[Json, ...]) -> LoadedEntries:
    entries: list[ServerEntry] = []
    refusals: list[Refusal] = []
    for index, value in enumerate(client_servers):
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(name, str) or not name:
            reason = 'It must be an object with a "name".'
            refusals.append(Refusal(server=f"mcpServers[{index}]", stage=Stage.LOAD, reason=reason))
        else:
            entries.append(
                ServerEntry(
                    name=name,
                    source=Source.CLIENT,
                    origin=CLIENT_ORIGIN,
                    value=_normalize_client_entry(value),
                )
            )
    return LoadedEntries(entries=tuple(entries), refusals=tuple(refusals))


def _normalize_client_entry(entry: JsonObject) -> JsonObject:
    """Convert the client's lists of `{name, value}` to objects, as files have them. `validate` refuses invalid lists."""
    value = {key: inner for key, inner in entry.items() if key not in ("name", "_meta")}
    for key in ("env", "headers"):
        pairs = value.get(key)
        if isinstance(pairs, list):
            try:
                named = msgspec.convert(pairs, list[_Pair])
            except msgspec.ValidationError:
                continue
            if len({pair.name for pair in named}) == len(named):
                value[key] = {pair.name: pair.value for pair in named}
    return value


class _Pair(msgspec.Struct):
    name: str
    value: str


def read_json(text: bytes) -> Json:
    """Decode a config file: strict JSON, or JSON with comments and trailing commas."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        return _decode_strict(text)
    except StrictJsonError as error:
        if b"//" not in text and b"/*" not in text and not _TRAILING_COMMA.search(text):
            raise
        bare = _COMMENT.sub(lambda found: found[1] or b" ", text)
        bare = _TRAILING_COMMA.sub(lambda found: found[1] or b"", bare)
        try:
            return _decode_strict(bare)
        except StrictJsonError:
            raise error from None


def _decode_strict(text: bytes) -> Json:
    check_json(text, DEFAULT_LIMITS)
    return msgspec.json.decode(text)


def read_config_files(host_file: Path, user_file: Path, project: Path | None) -> tuple[ConfigFile, ...]:
    """Read the config files of the host, the user and the project. A missing file is skipped."""
    return tuple(_read_all(host_file, user_file, project))


def _read_all(host_file: Path, user_file: Path, project: Path | None) -> Iterator[ConfigFile]:
    paths = [(Source.HOST, host_file), (Source.USER, user_file)]
    if project is not None:
        paths.append((Source.PROJECT, project / PROJECT_FILE))
    for source, path in paths:
        file = read_config_file(source, path)
        if file is not None:
            yield file


def read_config_file(source: Source, path: Path) -> ConfigFile | None:
    """Read one config file; None if it does not exist. If it cannot be read, `problem` says why."""
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > _MAX_BYTES:
            problem = f"It has more than {_MAX_BYTES} bytes."
            return ConfigFile(source=source, path=str(path), problem=problem)
        return ConfigFile(source=source, path=str(path), text=path.read_bytes())
    except OSError as error:
        problem = f"It cannot be read: {error.strerror}. Check its permissions."
        return ConfigFile(source=source, path=str(path), problem=problem)
