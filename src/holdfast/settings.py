"""What an operator can set: by environment, else by file, else by default."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast, get_args

from holdfast.model import codes
from holdfast.model.aliases import Aliases
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT, Limits
from holdfast.model.trust import Trust, parse_trust

T = TypeVar("T")
Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "human", "json"]
Pinning = Literal["all", "project"]
Engine = Literal["", "podman", "docker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value comes from; `where` names the file or variable, and is empty for a default."""

    kind: Literal["environment", "file", "default"]
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What is logged, and how it looks."""

    level: Level
    format: Format


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where servers are written down, and what the host allows them."""

    host_file: Path
    user_file: Path
    pass_on: tuple[str, ...]
    reachable: tuple[str, ...]
    pin_tools: Pinning


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How many servers are connected at once, how long unused, and how long each may take; 0 is for ever."""

    most: int
    idle_seconds: int
    shared_idle_seconds: int
    wait_seconds: int
    connect_seconds: int
    list_seconds: int
    call_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """How servers are confined: by containers where an engine is named, else by bubblewrap."""

    engine: Engine
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What the audit keeps of a call beside the hash of its arguments."""

    arguments: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, the file that was looked for, and the origin of each value by key."""

    data_dir: Path
    log: LogSettings
    wire: Limits
    servers: ServerSettings
    links: LinkSettings
    sandbox: SandboxSettings
    audit: AuditSettings
    trust_ceiling: Trust
    aliases: Aliases
    file: Path
    origins: Mapping[str, Origin]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T]):
    """One thing that can be set: its key in the file, its default, and how a raw value is read."""

    key: str
    default: Callable[[], T]
    read: Callable[[object], T]

    @property
    def variable(self) -> str:
        """The environment variable of the same meaning."""
        return "HOLDFAST_" + self.key.upper().replace(".", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One setting as a person sees it."""

    setting: Setting[Any]
    value: str | int
    origin: Origin


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read and check all settings; a file named by the caller or by `HOLDFAST_CONFIG` must exist."""
    file = path or default_file(environ)
    must_exist = path is not None or bool(environ.get("HOLDFAST_CONFIG"))
    source = _Source(file=file, text=_text(file, must_exist=must_exist), environ=environ)
    settings = Settings(
        data_dir=source.get(DATA_DIR),
        log=LogSettings(level=source.get(LOG_LEVEL), format=source.get(LOG_FORMAT)),
        wire=Limits(
            line_bytes=source.get(WIRE_LINE_BYTES),
            depth=source.get(WIRE_DEPTH),
            digits=source.get(WIRE_DIGITS),
            values=source.get(WIRE_VALUES),
            in_flight=source.get(WIRE_IN_FLIGHT),
        ),
        servers=ServerSettings(
            host_file=source.get(SERVERS_HOST_FILE),
            user_file=source.get(SERVERS_USER_FILE),
            pass_on=source.get(SERVERS_PASS_ON),
            reachable=source.get(SERVERS_REACHABLE),
            pin_tools=source.get(SERVERS_PIN_TOOLS),
        ),
        links=LinkSettings(
            most=source.get(LINKS_MOST),
            idle_seconds=source.get(LINKS_IDLE_SECONDS),
            shared_idle_seconds=source.get(LINKS_SHARED_IDLE_SECONDS),
            wait_seconds=source.get(LINKS_WAIT_SECONDS),
            connect_seconds=source.get(LINKS_CONNECT_SECONDS),
            list_seconds=source.get(LINKS_LIST_SECONDS),
            call_seconds=source.get(LINKS_CALL_SECONDS),
        ),
        sandbox=SandboxSettings(engine=source.get(SANDBOX_ENGINE), image=source.get(SANDBOX_IMAGE)),
        audit=AuditSettings(arguments=source.get(AUDIT_ARGUMENTS)),
        trust_ceiling=source.get(TRUST_CEILING),
        aliases=Aliases(
            env_prefixes=source.get(ALIASES_ENV_PREFIXES),
            session_variables=source.get(ALIASES_SESSION_VARIABLES),
            workspace_keys=source.get(ALIASES_WORKSPACE_KEYS),
            session_keys=source.get(ALIASES_SESSION_KEYS),
        ),
        file=file,
        origins=source.origins,
    )
    if source.problems:
        raise HoldfastError(codes.BAD_SETTINGS, "\n".join(source.problems))
    return settings


def default_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The file that is read when the caller names none."""
    if named := environ.get("HOLDFAST_CONFIG"):
        return Path(named).expanduser()
    from platformdirs import user_config_path

    return user_config_path("holdfast") / "config.toml"


def entries(settings: Settings) -> tuple[Entry, ...]:
    """Every setting with its value and origin, in the order of the documentation."""
    values: tuple[tuple[Setting[Any], str | int], ...] = (
        (DATA_DIR, str(settings.data_dir)),
        (LOG_LEVEL, settings.log.level),
        (LOG_FORMAT, settings.log.format),
        (WIRE_LINE_BYTES, settings.wire.line_bytes),
        (WIRE_DEPTH, settings.wire.depth),
        (WIRE_DIGITS, settings.wire.digits),
        (WIRE_VALUES, settings.wire.values),
        (WIRE_IN_FLIGHT, settings.wire.in_flight),
        (SERVERS_HOST_FILE, str(settings.servers.host_file)),
        (SERVERS_USER_FILE, str(settings.servers.user_file)),
        (SERVERS_PASS_ON, ", ".join(settings.servers.pass_on)),
        (SERVERS_REACHABLE, ", ".join(settings.servers.reachable)),
        (SERVERS_PIN_TOOLS, settings.servers.pin_tools),
        (LINKS_MOST, settings.links.most),
        (LINKS_IDLE_SECONDS, settings.links.idle_seconds),
        (LINKS_SHARED_IDLE_SECONDS, settings.links.shared_idle_seconds),
        (LINKS_WAIT_SECONDS, settings.links.wait_seconds),
        (LINKS_CONNECT_SECONDS, settings.links.connect_seconds),
        (LINKS_LIST_SECONDS, settings.links.list_seconds),
        (LINKS_CALL_SECONDS, settings.links.call_seconds),
        (SANDBOX_ENGINE, settings.sandbox.engine),
        (SANDBOX_IMAGE, settings.sandbox.image),
        (AUDIT_ARGUMENTS, str(settings.audit.arguments).lower()),
        (TRUST_CEILING, settings.trust_ceiling),
        (ALIASES_ENV_PREFIXES, ", ".join(settings.aliases.env_prefixes)),
        (ALIASES_SESSION_VARIABLES, ", ".join(settings.aliases.session_variables)),
        (ALIASES_WORKSPACE_KEYS, ", ".join(settings.aliases.workspace_keys)),
        (ALIASES_SESSION_KEYS, ", ".join(settings.aliases.session_keys)),
    )
    return tuple(
        Entry(setting=setting, value=value, origin=settings.origins[setting.key]) for setting, value in values
    )


def _user_data_path() -> Path:
    from platformdirs import user_data_path

    return user_data_path("holdfast")


def _user_servers() -> Path:
    from platformdirs import user_config_path

    return user_config_path("holdfast") / "mcp.json"


def _path(raw: object) -> Path:
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise ValueError("must be a path")
    folder = Path(raw).expanduser()
    if not folder.is_absolute():
        raise ValueError("must be an absolute path, or begin with ~")
    return folder


def _one_of(words: tuple[T, ...]) -> Callable[[object], T]:
    def read(raw: object) -> T:
        for word in words:
            if raw == word:
                return word
        raise ValueError(f"must be one of {', '.join(map(str, words))}")

    return read


def _number(least: int, most: int) -> Callable[[object], int]:
    def read(raw: object) -> int:
        if isinstance(raw, str) and re.fullmatch(r"[0-9]{1,20}", raw):
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int) or not least <= raw <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return raw

    return read


def _yes_or_no(raw: object) -> bool:
    """A boolean in the file, or its name in the environment."""
    if raw is True or raw == "true":
        return True
    if raw is False or raw == "false":
        return False
    raise ValueError("must be true or false")


def _names(raw: object) -> tuple[str, ...]:
    """A list in the file, or names with commas between them in the environment."""
    names: object = [part.strip() for part in raw.split(",") if part.strip()] if isinstance(raw, str) else raw
    if not isinstance(names, list) or not all(isinstance(name, str) for name in cast(list[object], names)):
        raise ValueError("must be a list of names")
    return tuple(cast(list[str], names))


def _word(raw: object) -> str:
    if not isinstance(raw, str) or raw.startswith("-") or any(letter.isspace() for letter in raw):
        raise ValueError("must be a single word")
    return raw


def _trust(raw: object) -> Trust:
    try:
        return parse_trust(str(raw))
    except HoldfastError:
        raise ValueError("must be direct or sandboxed") from None


_LEVELS: tuple[Level, ...] = get_args(Level)
_FORMATS: tuple[Format, ...] = get_args(Format)
_PINNINGS: tuple[Pinning, ...] = get_args(Pinning)
_ENGINES: tuple[Engine, ...] = get_args(Engine)

_DAY = 24 * 60 * 60
_YEAR = 366 * _DAY

DATA_DIR = Setting(key="data_dir", default=_user_data_path, read=_path)
LOG_LEVEL: Setting[Level] = Setting(key="log.level", default=lambda: "info", read=_one_of(_LEVELS))
LOG_FORMAT: Setting[Format] = Setting(key="log.format", default=lambda: "auto", read=_one_of(_FORMATS))
WIRE_LINE_BYTES = Setting(
    key="wire.line_bytes", default=lambda: DEFAULT.line_bytes, read=_number(1024, 2**30)
)
WIRE_DEPTH = Setting(key="wire.depth", default=lambda: DEFAULT.depth, read=_number(8, 512))
# More digits than this Python itself refuses to read.
WIRE_DIGITS = Setting(key="wire.digits", default=lambda: DEFAULT.digits, read=_number(16, 4300))
WIRE_VALUES = Setting(key="wire.values", default=lambda: DEFAULT.values, read=_number(1000, 10_000_000))
WIRE_IN_FLIGHT = Setting(key="wire.in_flight", default=lambda: DEFAULT.in_flight, read=_number(1, 65536))
SERVERS_HOST_FILE = Setting(
    key="servers.host_file", default=lambda: Path("/etc/holdfast/mcp.json"), read=_path
)
SERVERS_USER_FILE = Setting(key="servers.user_file", default=_user_servers, read=_path)
SERVERS_PASS_ON = Setting(key="servers.pass_on", default=tuple[str, ...], read=_names)
SERVERS_REACHABLE = Setting(key="servers.reachable", default=tuple[str, ...], read=_names)
SERVERS_PIN_TOOLS: Setting[Pinning] = Setting(
    key="servers.pin_tools", default=lambda: "all", read=_one_of(_PINNINGS)
)
LINKS_MOST = Setting(key="links.most", default=lambda: 1000, read=_number(1, 100_000))
LINKS_IDLE_SECONDS = Setting(key="links.idle_seconds", default=lambda: 0, read=_number(0, _YEAR))
LINKS_SHARED_IDLE_SECONDS = Setting(
    key="links.shared_idle_seconds", default=lambda: 600, read=_number(0, _YEAR)
)
LINKS_WAIT_SECONDS = Setting(key="links.wait_seconds", default=lambda: 5, read=_number(0, _DAY))
LINKS_CONNECT_SECONDS = Setting(key="links.connect_seconds", default=lambda: 30, read=_number(1, _DAY))
LINKS_LIST_SECONDS = Setting(key="links.list_seconds", default=lambda: 30, read=_number(1, _DAY))
LINKS_CALL_SECONDS = Setting(key="links.call_seconds", default=lambda: 600, read=_number(1, _DAY))
SANDBOX_ENGINE: Setting[Engine] = Setting(key="sandbox.engine", default=lambda: "", read=_one_of(_ENGINES))
SANDBOX_IMAGE = Setting(key="sandbox.image", default=str, read=_word)
AUDIT_ARGUMENTS = Setting(key="audit.arguments", default=lambda: False, read=_yes_or_no)
TRUST_CEILING = Setting(key="trust_ceiling", default=lambda: Trust.DIRECT, read=_trust)
ALIASES_ENV_PREFIXES = Setting(key="aliases.env_prefixes", default=tuple[str, ...], read=_names)
ALIASES_SESSION_VARIABLES = Setting(key="aliases.session_variables", default=tuple[str, ...], read=_names)
ALIASES_WORKSPACE_KEYS = Setting(key="aliases.workspace_keys", default=tuple[str, ...], read=_names)
ALIASES_SESSION_KEYS = Setting(key="aliases.session_keys", default=tuple[str, ...], read=_names)
SETTINGS: tuple[Setting[Any], ...] = (
    *(DATA_DIR, LOG_LEVEL, LOG_FORMAT),
    *(WIRE_LINE_BYTES, WIRE_DEPTH, WIRE_DIGITS, WIRE_VALUES, WIRE_IN_FLIGHT),
    *(
        SERVERS_HOST_FILE,
        SERVERS_USER_FILE,
        SERVERS_PASS_ON,
        SERVERS_REACHABLE,
        SERVERS_PIN_TOOLS,
    ),
    *(LINKS_MOST, LINKS_IDLE_SECONDS, LINKS_SHARED_IDLE_SECONDS),
    *(LINKS_WAIT_SECONDS, LINKS_CONNECT_SECONDS, LINKS_LIST_SECONDS, LINKS_CALL_SECONDS),
    *(SANDBOX_ENGINE, SANDBOX_IMAGE, AUDIT_ARGUMENTS, TRUST_CEILING),
    *(ALIASES_ENV_PREFIXES, ALIASES_SESSION_VARIABLES, ALIASES_WORKSPACE_KEYS, ALIASES_SESSION_KEYS),
)


def _text(file: Path, *, must_exist: bool) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not must_exist:
            return ""
        reason = "there is no such file. Create it, or name another in HOLDFAST_CONFIG."
    except UnicodeDecodeError:
        reason = "it is not UTF-8. Save it as UTF-8."
    except OSError as error:
        reason = f"{error.strerror}."
    raise HoldfastError(codes.BAD_SETTINGS, f"Could not read settings from {str(file)!r}: {reason}")


@dataclass(slots=True, kw_only=True)
class _Source:
    """Gives values by key, and gathers their origins and all that is wrong with them."""

    file: Path
    text: str
    environ: Mapping[str, str]
    origins: dict[str, Origin] = field(default_factory=dict[str, Origin])
    problems: list[str] = field(default_factory=list[str])
    in_file: dict[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        import tomllib

        try:
            self.in_file = dict(_flat(tomllib.loads(self.text)))
        except tomllib.TOMLDecodeError as error:
            message = f"{self.file}: not valid TOML: {error}. Correct that line."
            raise HoldfastError(codes.BAD_SETTINGS, message) from None
        for key in self.in_file.keys() - {setting.key for setting in SETTINGS}:
            self.problems.append(f"{self._place(key)}: {_unknown(key)}")
        self.problems.sort()

    def get(self, setting: Setting[T]) -> T:
        """The value in force; the default where it is wrong, and the problem noted."""
        place, raw = "", None
        if value := self.environ.get(setting.variable):
            place, raw = setting.variable, value
            origin = Origin(kind="environment", where=setting.variable)
        elif setting.key in self.in_file:
            place, raw = f"{self._place(setting.key)}: {setting.key}", self.in_file[setting.key]
            origin = Origin(kind="file", where=str(self.file))
        else:
            origin = Origin(kind="default")
        self.origins[setting.key] = origin
        if origin.kind == "default":
            return setting.default()
        try:
            return setting.read(raw)
        except ValueError as error:
            self.problems.append(f"{place} {error}, not {_shown(raw)}.")
            return setting.default()

    def _place(self, key: str) -> str:
        line = _line_of(key, self.text)
        return f"{self.file}, line {line}" if line else f"{self.file}"


def _shown(raw: object) -> str:
    return repr(raw).lower() if isinstance(raw, bool) else repr(raw)


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The keys of nested tables joined by dots, as far down as settings go."""
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and any(setting.key.startswith(f"{key}.") for setting in SETTINGS):
            yield from _flat(value, f"{key}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield key, value


def _unknown(key: str) -> str:
    from difflib import get_close_matches

    keys = [setting.key for setting in SETTINGS]
    inside = [known for known in keys if known.startswith(f"{key}.")]
    if inside:
        return f"{key!r} is a section. Write [{key}], and below it {inside[0].removeprefix(f'{key}.')} = ..."
    near = get_close_matches(key, keys, n=1)
    fix = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(keys)}."
    return f"unknown key {key!r}. {fix}"


def _line_of(key: str, text: str) -> int | None:
    """The line that sets a key: tomllib does not tell, so this looks for it as people write it."""
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w.\-]+)\s*\]", line):
            section = f"{header[1]}."
        elif (name := re.match(r"""\s*["']?([\w.\-]+)["']?\s*=""", line)) and (
            key == section + name[1] or key.startswith(f"{section}{name[1]}.")
        ):
            return number
        if section.rstrip(".") == key:
            return number
    return None
