"""Stage one: read the entries in config files and in the client's request, and note the source of each."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, Limits, SizeLimit
from holdfast.model.resolution import Refusal, SessionWarning, Stage
from holdfast.model.server import TRUSTED_SOURCES, Source
from holdfast.model.untrusted_file import (
    SharedFileError,
    UnusableFileError,
    read_own_file,
    read_untrusted_file,
)
from holdfast.resolve.json_with_comments import decode_json_with_comments
from holdfast.resolve.server_entry import ServerEntry
from holdfast.sandbox.placeholders import is_placeholder_path
from holdfast.wire.strict_json import StrictJsonError, exceeds_limit

CLIENT_ORIGIN = "the client's request"
PROJECT_FILE = ".mcp.json"
_MAX_QUICK_ENTRIES = 8
LEFT_OUT = "Its servers are left out until the file is corrected."


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEntries:
    """The entries that were read, and refusals of files and entries that could not be read."""

    entries: tuple[ServerEntry, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[SessionWarning, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The secrets in all entries, also in refused ones, to mask in everything that is stored. Of a project's entries, only values that look random."""
    is_damaged: bool = False
    """Whether the file may be half saved: its content is not valid, or could not be read in time."""
    trusted_secrets: tuple[str, ...] = field(default=(), repr=False)
    """The `secrets` that come from the application, the operator and the user. The other `secrets` are not masked in questions to the user."""

    @property
    def is_quick(self) -> bool:
        """Whether resolution needs no thread: the entries are few, and none comes from a project or a client, which could send very large ones."""
        return (
            len(self.entries) <= _MAX_QUICK_ENTRIES
            and len(self.secrets) == len(self.trusted_secrets)
            and all(entry.source in TRUSTED_SOURCES for entry in self.entries)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The content of a config file, or why it could not be read (`problem`)."""

    source: Source
    path: str
    content: bytes = field(default=b"", repr=False)
    problem: str = ""


def load(files: Iterable[ConfigFile], client_servers: Iterable[Json] = ()) -> LoadedEntries:
    """Read all entries, in order of trust: the operator's, the user's, the project's, the client's."""
    return combine(*map(_from_file, files), _from_client(tuple(client_servers)))


def combine(*parts: LoadedEntries) -> LoadedEntries:
    """Merge entries and refusals, the entries of the most trusted source first. The parts have no warnings and secrets yet."""
    order = list(Source)
    entries = sorted(
        (entry for part in parts for entry in part.entries), key=lambda entry: order.index(entry.source)
    )
    return LoadedEntries(
        entries=tuple(entries), refusals=tuple(refusal for part in parts for refusal in part.refusals)
    )


def _from_file(file: ConfigFile) -> LoadedEntries:
    def refused(reason: str, *, is_damaged: bool = False) -> LoadedEntries:
        refusal = Refusal(server=file.path, stage=Stage.LOAD, reason=reason)
        return LoadedEntries(refusals=(refusal,), is_damaged=is_damaged)

    limits = _limits(file.source)
    if file.problem:
        return refused(file.problem)
    try:
        document = decode_json_with_comments(file.content, limits.json)
    except StrictJsonError as error:
        return refused(
            f"It is not valid JSON: {error}. {LEFT_OUT}",
            is_damaged=True,
        )
    servers = document.get("mcpServers", document.get("servers", {})) if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        return refused(
            'It must have this form: {"mcpServers": {"name": {"command": "…"}}}.',
            is_damaged=True,
        )
    if len(servers) > limits.servers:
        return refused(f"It has {len(servers)} servers, more than {limits.servers}. Remove some of them.")
    return LoadedEntries(
        entries=tuple(
            ServerEntry(name=name, source=file.source, origin=file.path, value=value)
            for name, value in servers.items()
        )
    )


def _from_client(client_servers: tuple[Json, ...]) -> LoadedEntries:
    if too_large := _why_too_large(client_servers):
        return LoadedEntries(refusals=(Refusal(server="mcpServers", stage=Stage.LOAD, reason=too_large),))
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


def _why_too_large(client_servers: tuple[Json, ...]) -> str:
    if len(client_servers) > _MAX_CLIENT_SERVERS:
        problem = f"has {len(client_servers)} servers, more than {_MAX_CLIENT_SERVERS}"
    elif exceeds_limit(_encode_any_text(client_servers), _CLIENT_LIMIT):
        problem = f"describes its servers with more than {_CLIENT_LIMIT.bytes} bytes or {_CLIENT_LIMIT.values} values"
    else:
        return ""
    return f"The client's request {problem}, so none of them is used. Configure fewer in the client."


def _encode_any_text(client_servers: tuple[Json, ...]) -> bytes:
    try:
        return msgspec.json.encode(client_servers)
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(client_servers).encode()


def _normalize_client_entry(entry: JsonObject) -> JsonObject:
    """Convert lists of `{name, value}`, which clients send, to objects as in files. `validate` refuses invalid lists."""
    value = {key: inner for key, inner in entry.items() if key not in ("name", "_meta")}
    for key in ("env", "headers"):
        pairs = value.get(key)
        if isinstance(pairs, list):
            try:
                parsed = msgspec.convert(pairs, list[_Pair])
            except msgspec.ValidationError:
                continue
            if len({pair.name for pair in parsed}) == len(parsed):
                value[key] = {pair.name: pair.value for pair in parsed}
    return value


class _Pair(msgspec.Struct):
    name: str
    value: str


def load_file(source: Source, path: Path) -> LoadedEntries:
    """Read one config file. A missing file has no entries."""
    file = read_config_file(source, path)
    return LoadedEntries() if file is None else _from_file(file)


def read_config_file(source: Source, path: Path) -> ConfigFile | None:
    """Read one config file; None if it does not exist. If it cannot be read, `problem` says why.

    A project's file must not be a link: the link could lead to a private file of the user, whose content would then be shown.
    """
    limit = _limits(source).bytes
    try:
        if source is Source.PROJECT:
            content = read_untrusted_file(path, limit=limit, follow_link=False)
        else:
            content = read_own_file(path, limit=limit)
        return ConfigFile(source=source, path=str(path), content=content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except SharedFileError as error:
        problem = f"It is not read: {error.strerror}"
    except UnusableFileError as error:
        # While a confined server runs, a placeholder (an empty folder) may have the file's name: see `sandbox/placeholders.py`.
        if is_placeholder_path(path):
            return None
        problem = f"It is not read: {error.strerror}. It must be a regular file of at most {limit} bytes."
    except OSError as error:
        problem = f"It cannot be read: {error.strerror}. Check the file and its permissions."
    return ConfigFile(source=source, path=str(path), problem=problem)


def _limits(source: Source) -> "_FileLimits":
    return _PROJECT_LIMITS if source is Source.PROJECT else _TRUSTED_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileLimits:
    bytes: int
    servers: int
    json: Limits


_MAX_CLIENT_SERVERS = 100
_CLIENT_LIMIT = SizeLimit(bytes=256 * 1024, values=10_000)
# A project's file may come from anyone, and it is read before it is approved.
_PROJECT_LIMITS = _FileLimits(bytes=64 * 1024, servers=100, json=Limits(depth=32, values=10_000))
_TRUSTED_LIMITS = _FileLimits(bytes=4 * 1024 * 1024, servers=10_000, json=DEFAULT_LIMITS)
