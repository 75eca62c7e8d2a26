"""The declarations of all settings, by section.

Each setting is one dataclass field with a `help` text in its metadata, and `min` and `max` for numbers. The section and
the field name give the key and the variable: `links.call_seconds`, `HOLDFAST_LINKS_CALL_SECONDS`. The parser,
`holdfast settings show` and docs/settings.md are all derived from these fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from holdfast.model.context_aliases import ContextAliases
from holdfast.model.limits import Limits
from holdfast.model.permission import Mode, ToolPattern
from holdfast.model.trust import Trust

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "human", "json"]
Pinning = Literal["all", "project"]
Engine = Literal["", "podman", "docker"]

_DAY = 24 * 60 * 60
_YEAR = 366 * _DAY


def _user_data_path() -> Path:
    from platformdirs import user_data_path

    return user_data_path("holdfast")


def _user_servers_file() -> Path:
    from platformdirs import user_config_path

    return user_config_path("holdfast") / "mcp.json"


def _packages_folder() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("holdfast") / "packages"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What is logged, and in which format."""

    level: Level = field(
        default="info",
        metadata={
            "help": "The lowest level that is logged: `debug`, `info`, `warning` or `error`. Libraries log only"
            " warnings and errors."
        },
    )
    format: Format = field(
        default="auto",
        metadata={
            "help": "`human`, `json`, or `auto`: human on a terminal, JSON lines elsewhere. Logs go to standard error."
            " If standard error is a pipe that is not read, lines are dropped and counted."
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The files that list servers, and what servers may use."""

    host_file: Path = field(
        default=Path("/etc/holdfast/mcp.json"),
        metadata={"help": "The operator's list of servers, for every user of this machine."},
    )
    user_file: Path = field(
        default_factory=_user_servers_file,
        metadata={
            "help": "Your own list of servers. By default `~/.config/holdfast/mcp.json` on Linux,"
            " `~/Library/Application Support/holdfast/mcp.json` on macOS.",
            "default": "your configuration folder",
        },
    )
    pass_on: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "Names of environment variables that Holdfast passes on to the servers of direct sessions, in addition to"
            " the usual ones (`PATH`, `HOME`, `LANG`, …)."
        },
    )
    reachable: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "Exceptions to the ban on private addresses: hosts that confined servers may connect to, and that remote servers"
            " of sandboxed sessions or of clients may run on, although their address is private. A confined server also needs"
            " the host in the `network` of its entry. There are no wildcards: name each host."
        },
    )
    registries: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "Hosts that package runners (`npx`, `uvx`, `bunx`, `pipx run`) may fetch packages from for confined servers. The"
            " servers themselves do not reach them."
        },
    )
    packages: Path = field(
        default_factory=_packages_folder,
        metadata={
            "help": "Where the packages of confined servers are kept, in a folder for each server. By default"
            " `~/.cache/holdfast/packages` on Linux.",
            "default": "your cache folder",
        },
    )
    pin_tools: Pinning = field(
        default="all",
        metadata={
            "help": "Which tools need your approval when they change after their first use: the tools of `all` servers, or"
            " only those of servers that a project or a client defines (`project`). Servers that an application passes to `Host` are its"
            " own: their tools never need approval."
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How many servers are connected at once, and their timeouts."""

    max_open: int = field(
        default=1000,
        metadata={
            "help": "The maximum number of servers that are connected at once, in all sessions together. Built-in servers do not"
            " count. One session cannot use up the limit: it may connect another server only while it has fewer connections"
            " than are still free.",
            "min": 1,
            "max": 100_000,
        },
    )
    idle_seconds: int = field(
        default=0,
        metadata={
            "help": "Disconnect a session's server after this time without use. The next call starts it again, and"
            " its result says `STATE_LOST`. 0 means never.",
            "min": 0,
            "max": _YEAR,
        },
    )
    shared_idle_seconds: int = field(
        default=600,
        metadata={
            "help": 'Disconnect a server that sessions share (`"lifetime": "host"`) after this time without use. 0 means'
            " never.",
            "min": 0,
            "max": _YEAR,
        },
    )
    wait_seconds: int = field(
        default=5,
        metadata={
            "help": "How long a session's first prompt, a resumed session and the start of a chat wait for servers that"
            " are still starting. Servers that take longer still become available later.",
            "min": 0,
            "max": _DAY,
        },
    )
    connect_seconds: int = field(
        default=30,
        metadata={
            "help": "How long a server may take to start and complete its handshake.",
            "min": 1,
            "max": _DAY,
        },
    )
    list_seconds: int = field(
        default=30, metadata={"help": "How long a server may take to list its tools.", "min": 1, "max": _DAY}
    )
    call_seconds: int = field(
        default=600,
        metadata={"help": "How long a call may take if its caller sets no timeout.", "min": 1, "max": _DAY},
    )


DEFAULT_LINK_SETTINGS = LinkSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """How servers are confined."""

    engine: Engine = field(
        default="",
        metadata={
            "help": "Run confined servers in containers, with `podman` or `docker`. If it is not set, bubblewrap confines"
            " them, without containers."
        },
    )
    image: str = field(
        default="", metadata={"help": "The image of the containers; required with `sandbox.engine`."}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """The browser that sessions can use."""

    enabled: bool = field(
        default=False,
        metadata={
            "help": "Whether sessions get the built-in server [`stage`](stage.md), which drives a browser, if Chromium or Chrome is"
            " installed. It adds 27 tools, about 6,000 tokens."
        },
    )
    browser: str = field(
        default="",
        metadata={
            "help": "The path of the browser's program. If it is not set, Chromium or Chrome is searched for in the system's folders."
        },
    )
    hosts: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "The hosts that the browser of a sandboxed session may reach, such as `example.org` or `example.org:8080`; `*` for every"
            " host on the internet. Private addresses must also be in `servers.reachable`. Without hosts, sandboxed sessions do"
            " not get the browser."
        },
    )
    allow_eval: bool = field(
        default=False,
        metadata={"help": "Whether the browser's tool `evaluate` is offered, which runs scripts in pages."},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxModeSettings:
    """The highest mode that a session can have in an editor, in a chat, in `holdfast call` and in a program."""

    acp: Mode = field(
        default=Mode.AUTO,
        metadata={
            "help": "The highest mode that an editor (`holdfast acp`) can choose: `read-only`, `ask` or `auto`. If a stored"
            " session has a higher mode, it is lowered when the editor opens the session."
        },
    )
    chat: Mode = field(default=Mode.AUTO, metadata={"help": "The highest mode in `holdfast chat`."})
    cli: Mode = field(
        default=Mode.AUTO,
        metadata={"help": "The mode of `holdfast call`: `auto`, unless you set a lower one here."},
    )
    python: Mode = field(
        default=Mode.AUTO, metadata={"help": "The highest mode in programs that use `holdfast.Host`."}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionSettings:
    """Which calls run, which need your permission, and which are refused."""

    deny: tuple[ToolPattern, ...] = field(
        default=(),
        metadata={
            "help": "Tools that Holdfast never calls, as [patterns](permissions.md#rules) such as `git.push` or `*.delete*`."
        },
    )
    ask: tuple[ToolPattern, ...] = field(
        default=(),
        metadata={"help": "Tools for which Holdfast asks you before every call, even in the mode `auto`."},
    )
    allow: tuple[ToolPattern, ...] = field(
        default=(),
        metadata={"help": "Tools that Holdfast calls without asking, in every mode, even in `read-only`."},
    )
    wait: int = field(
        default=0,
        metadata={
            "help": "How many seconds a call waits for an editor or terminal if none can answer its question. After that, the"
            " call is refused.",
            "min": 0,
            "max": _DAY,
        },
    )
    max_mode: MaxModeSettings = field(default_factory=MaxModeSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How long sessions are kept."""

    keep_days: int = field(
        default=0,
        metadata={
            "help": "Delete sessions that were not used for this many days. This happens whenever Holdfast starts. Audit records are"
            " kept. 0 means that sessions are kept for ever.",
            "min": 0,
            "max": 36_500,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What the audit stores about a call."""

    arguments: bool = field(
        default=False,
        metadata={
            "help": "Whether the audit stores the arguments of every call (masked, up to 16 KiB) in addition to their hash."
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value comes from. `where` is the file or the variable; it is empty for a default."""

    kind: Literal["environment", "file", "default"]
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, the path of the settings file, and the origin of each value, by key."""

    data_dir: Path = field(
        default_factory=_user_data_path,
        metadata={
            "help": "Where Holdfast keeps its data: an absolute path, or one that begins with `~`. By default"
            " `~/.local/share/holdfast` on Linux, `~/Library/Application Support/holdfast` on macOS.",
            "default": "your data folder",
        },
    )
    log: LogSettings
    wire: Limits
    servers: ServerSettings
    links: LinkSettings
    permission: PermissionSettings
    sandbox: SandboxSettings
    stage: StageSettings
    audit: AuditSettings
    sessions: SessionSettings
    trust_ceiling: Trust = field(
        default=Trust.DIRECT,
        metadata={"help": "The highest trust that any session can have: `direct` or `sandboxed`."},
    )
    aliases: ContextAliases
    file: Path
    origins: Mapping[str, Origin]
