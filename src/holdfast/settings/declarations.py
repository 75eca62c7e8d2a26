"""The declarations of all settings, by section.

Each setting is one dataclass field. Its metadata has a `help` text, `min` and `max` for numbers, and a `default` for the documentation
where the real default depends on the machine. The section and the field name give the key and the environment variable:
`links.call_seconds`, `HOLDFAST_LINKS_CALL_SECONDS`. The parser, `holdfast settings show` and docs/settings.md are all derived from
these fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec import Struct

from holdfast.model.context_aliases import ContextAliases
from holdfast.model.limits import Limits
from holdfast.model.permission import Mode
from holdfast.model.settings_section import SettingsSection
from holdfast.model.tool_pattern import ToolPattern
from holdfast.model.trust import Trust

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "human", "json"]
Pinning = Literal["all", "project"]
Engine = Literal["", "podman", "docker"]
ToolNames = Literal["auto", "qualified", "bare"]

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LogSettings(SettingsSection):
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TraceSettings(SettingsSection):
    """Where traces are sent."""

    otlp_url: str = field(
        default="",
        metadata={
            "help": "The address of an OpenTelemetry collector that gets [traces](traces.md) over OTLP/HTTP, such as"
            " `http://127.0.0.1:4318`. If it is not set, there are no traces."
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ServerSettings(SettingsSection):
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
            ' own: their tools need no approval, unless an entry has `"pin_tools": true`.'
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LinkSettings(SettingsSection):
    """How many servers are connected at once, and their timeouts."""

    max_open: int = field(
        default=1000,
        metadata={
            "help": "The maximum number of servers that are connected at once, in all sessions together. Built-in servers do not"
            " count. Neither one session nor all sessions of one MCP client's token can use up the limit: they may connect"
            " another server only while they have fewer connections than are still free.",
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
            "help": "How long a session's first prompt, a message of another session, a resumed session and the start of a"
            " chat wait for servers that are still starting. Servers that take longer still become available later.",
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
        default=30,
        metadata={
            "help": "How long a server may take to list its tools, resources or prompts, to read a resource, or to get a prompt.",
            "min": 1,
            "max": _DAY,
        },
    )
    call_seconds: int = field(
        default=600,
        metadata={
            "help": "How long a call may take if neither its caller nor the server's entry sets a timeout.",
            "min": 1,
            "max": _DAY,
        },
    )


DEFAULT_LINK_SETTINGS = LinkSettings()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SandboxSettings(SettingsSection):
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
    keep: bool = field(
        default=False,
        metadata={
            "help": "Whether each stored session [keeps the containers](sandbox.md#containers-that-are-kept) of its confined servers, with"
            " the files that were written in them, until it is deleted. Only with `sandbox.engine`. By default, a container is"
            " removed when its server ends."
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StageSettings(SettingsSection):
    """The browser that sessions can use."""

    enabled: bool = field(
        default=True,
        metadata={
            "help": "Whether the built-in server [`stage`](stage.md), which drives a browser, is offered if Chromium or Chrome is installed: to"
            " editors and chats, and to the applications and MCP clients that name it. Its process starts at the first call."
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ModelSettings(SettingsSection):
    """The model that answers prompts, and the limits of a turn."""

    name: str = field(
        default="",
        metadata={
            "help": "The [model](models.md) that answers prompts, such as `anthropic:claude-sonnet-5`, `openai:gpt-5.5` or"
            " `ollama:qwen3`. If it is not set, you call the tools yourself. A workspace (`model`) or a session (`--model`,"
            " `/model`) can choose another one."
        },
    )
    also: tuple[str, ...] = field(
        default=(),
        metadata={"help": "Other models that editors offer, and that an agent's definition may choose."},
    )
    base_url: str = field(
        default="",
        metadata={
            "help": "The address of an endpoint of your own, such as `http://127.0.0.1:8080/v1`. All models with the prefix `openai:`,"
            " `openai-chat:`, `anthropic:` or `ollama:`, or without a prefix, are then used there. The only key that is sent to it is"
            " that of `model.api_key_env`."
        },
    )
    api_key_env: str = field(
        default="",
        metadata={
            "help": "The name of the environment variable with the endpoint's key. By default, the provider's own, such as"
            " `ANTHROPIC_API_KEY`; with `model.base_url`, none."
        },
    )
    context_tokens: int = field(
        default=128_000,
        metadata={
            "help": "How many tokens the model can read. Before a conversation reaches them, its beginning is summarized for the model;"
            " you still see all of it.",
            "min": 1000,
            "max": 100_000_000,
        },
    )
    max_requests: int = field(
        default=100,
        metadata={
            "help": "How many requests to the model one turn may make.",
            "min": 1,
            "max": 100_000,
        },
    )
    max_calls: int = field(
        default=500,
        metadata={"help": "How many tool calls one turn may make.", "min": 1, "max": 100_000},
    )
    max_cost_cents: int = field(
        default=0,
        metadata={
            "help": "How many US cents one turn may cost, where the model's price is known. 0 means no limit.",
            "min": 0,
            "max": 10_000_000,
        },
    )
    idle_seconds: int = field(
        default=300,
        metadata={
            "help": "End a turn if an answer of the model makes no progress for this long. Keep-alives of its endpoint do not count.",
            "min": 1,
            "max": _DAY,
        },
    )
    turn_seconds: int = field(
        default=3600,
        metadata={
            "help": "How long the model may take in one turn. The time of tools and of your answers does not count.",
            "min": 1,
            "max": _DAY,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AgentSettings(SettingsSection):
    """How many agents an agent may start, and how many messages they may send."""

    max_depth: int = field(
        default=1,
        metadata={
            "help": "How many levels of [agents](agents.md) there may be below your own agent: sub-agents, and sessions that an agent"
            " creates. With 0, no agent starts another one.",
            "min": 0,
            "max": 5,
        },
    )
    max_children: int = field(
        default=4,
        metadata={
            "help": "How many sub-agents may run at the same time, below one session that you opened.",
            "min": 0,
            "max": 100,
        },
    )
    max_messages_per_hour: int = field(
        default=1000,
        metadata={
            "help": "How many messages the sessions of one workspace may send to each other in an hour, in each process.",
            "min": 0,
            "max": 1_000_000,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MaxModeSettings(SettingsSection):
    """The highest mode that a session can have in an editor, in a chat, in `holdfast call`, in an MCP client and in an application."""

    acp: Mode = field(
        default=Mode.AUTO,
        metadata={
            "help": "The highest mode that an editor (`holdfast acp`) can choose: `read-only`, `ask` or `auto`. If a stored"
            " session has a higher mode, it is lowered when the editor opens the session."
        },
    )
    chat: Mode = field(
        default=Mode.AUTO, metadata={"help": "The highest mode in `holdfast chat` and `holdfast dev`."}
    )
    cli: Mode = field(
        default=Mode.AUTO,
        metadata={"help": "The mode of `holdfast call`: `auto`, unless you set a lower one here."},
    )
    gateway: Mode = field(
        default=Mode.AUTO,
        metadata={
            "help": "The highest mode that a token for MCP clients (`holdfast tokens create --mode`) can give, and the highest mode of"
            " `holdfast mcp`."
        },
    )
    python: Mode = field(
        default=Mode.AUTO, metadata={"help": "The highest mode in applications that use `holdfast.Host`."}
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PermissionSettings(SettingsSection):
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
        metadata={
            "help": "Tools that Holdfast calls without asking, in every mode, even in `read-only`, unless a `deny` or `ask` rule matches, too. Not"
            " for servers that a client supplies."
        },
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GatewaySettings(SettingsSection):
    """The front end for MCP clients (`holdfast up`): what it offers, what each token may use, and who issues tokens."""

    port: int = field(
        default=7433,
        metadata={"help": "The port of `holdfast up`; 0 chooses a free one.", "min": 0, "max": 65_535},
    )
    tool_names: ToolNames = field(
        default="auto",
        metadata={
            "help": "How MCP clients see the tools: `qualified` (`server__tool`), `bare` (`tool`), or `auto`: bare if exactly one"
            " server is configured, else qualified. Where two bare names are the same, both get a suffix."
        },
    )
    builtin: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "The built-in servers that MCP clients get, such as `files` or `tasks`. By default none: most clients have tools of"
            " their own for this."
        },
    )
    max_sessions: int = field(
        default=1000,
        metadata={
            "help": "The maximum number of open sessions of all MCP clients.",
            "min": 1,
            "max": 100_000,
        },
    )
    max_sessions_per_token: int = field(
        default=100,
        metadata={
            "help": "The maximum number of open sessions of one token. Sessions that were never used are ended first.",
            "min": 1,
            "max": 100_000,
        },
    )
    max_new_sessions_per_minute: int = field(
        default=120,
        metadata={
            "help": "How many sessions one token may open in a minute. Each session starts its own servers.",
            "min": 1,
            "max": 1_000_000,
        },
    )
    session_idle_seconds: int = field(
        default=3600,
        metadata={
            "help": "End the session of an MCP client, and its servers, after this time without a request or an open stream. A session whose client sends no request after `initialize` ends after 60 seconds.",
            "min": 1,
            "max": _YEAR,
        },
    )
    max_requests_per_second: int = field(
        default=10_000,
        metadata={
            "help": "How many requests one token may send in a second, on average.",
            "min": 1,
            "max": 10_000_000,
        },
    )
    max_requests_in_flight: int = field(
        default=256,
        metadata={
            "help": "How many requests of one token are answered at the same time. Open streams (GET) are counted separately, with the same limit.",
            "min": 1,
            "max": 100_000,
        },
    )
    max_body_bytes: int = field(
        default=4 * 1024 * 1024,
        metadata={"help": "The maximum size of a request of an MCP client.", "min": 1024, "max": 2**30},
    )
    issuer: str = field(
        default="",
        metadata={
            "help": "The URL of an OAuth authorization server whose tokens (JWTs) are accepted in addition to those of `holdfast tokens"
            " create`. [MCP clients](mcp-clients.md#tokens-of-an-issuer) has the details."
        },
    )
    audience: str = field(
        default="",
        metadata={
            "help": "The audience (`aud`) that the issuer's tokens must have: the public URL of this gateway, such as"
            " `https://mcp.example.org/mcp`. Required with `gateway.issuer`."
        },
    )
    jwks_url: str = field(
        default="",
        metadata={
            "help": "Where the issuer publishes its keys. By default, the `jwks_uri` in the issuer's metadata."
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SessionSettings(SettingsSection):
    """How long sessions are kept, and how much each may store."""

    keep_days: int = field(
        default=0,
        metadata={
            "help": "Delete sessions that were not used for this many days. This happens whenever Holdfast starts. If it would delete all"
            " sessions, the clock may be wrong: they are deleted at the first start a day later. Audit records are kept. 0 means that none are deleted.",
            "min": 0,
            "max": 36_500,
        },
    )
    max_megabytes: int = field(
        default=2000,
        metadata={
            "help": "How much one session may store, in megabytes. A session that has reached this accepts neither prompts nor calls; it can"
            " still be read. 0 means no limit.",
            "min": 0,
            "max": 1_000_000,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WorkspaceSettings(SettingsSection):
    """Which folders become workspaces without the user."""

    auto_register: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "Folders in which any MCP client of a toolkit server, such as `holdfast builtin tasks`, may register a folder as a"
            " workspace by sending its absolute path. The workspace is sandboxed. At most 100 are registered, none that is"
            " hidden or overlaps with another workspace or with Holdfast's own folders."
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AuditSettings(SettingsSection):
    """What the audit stores about a call."""

    arguments: bool = field(
        default=False,
        metadata={
            "help": "Whether the audit stores the arguments of every call (masked, up to 16 KiB) in addition to their hash."
        },
    )


class Origin(Struct, frozen=True, kw_only=True):
    """Where a value comes from. `where` is the file or the environment variable; it is empty for a default."""

    kind: Literal["environment", "file", "default"]
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Settings(SettingsSection):
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
    traces: TraceSettings
    wire: Limits
    servers: ServerSettings
    links: LinkSettings
    permission: PermissionSettings
    sandbox: SandboxSettings
    stage: StageSettings
    model: ModelSettings
    agents: AgentSettings
    audit: AuditSettings
    sessions: SessionSettings
    workspaces: WorkspaceSettings
    gateway: GatewaySettings
    trust_ceiling: Trust = field(
        default=Trust.DIRECT,
        metadata={"help": "The highest trust that any session can have: `direct` or `sandboxed`."},
    )
    aliases: ContextAliases
    file: Path
    origins: Mapping[str, Origin]
