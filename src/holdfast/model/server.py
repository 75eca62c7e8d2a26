"""How to reach an MCP server, and where its entry came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.context import SessionContext
from holdfast.model.process import Confinement
from holdfast.model.tool_pattern import ToolPattern
from holdfast.model.trust import Trust

FILES_SERVER = "files"
"""The name of the built-in file server. No other server can have this name."""
SHELL_SERVER = "shell"
"""The name of the built-in server that runs commands."""
# The built-in tools that start further agents: the names of the server and of the tool.
DELEGATE = ("agents", "delegate")
CREATE_SESSION = ("team", "create_session")
SPAWNING_TOOLS = frozenset({DELEGATE, CREATE_SESSION})
"""A session that may start no further agent does not get these tools."""
_EMPTY: Mapping[str, str] = MappingProxyType({})
# Read once: in Python 3.11, reading a member of an enum takes longer than a call of a function.
_DIRECT = Trust.DIRECT


class Source(StrEnum):
    """Where a server's entry came from; set by the loader, never by the entry itself. The most trusted is first."""

    BUILTIN = "builtin"
    APP = "app"
    """The application that embeds `Host`."""
    OPERATOR = "host"
    """The operator's list of servers (`servers.host_file`)."""
    USER = "user"
    """The user's own list (`servers.user_file`)."""
    PROJECT = "project"
    """The `.mcp.json` in the session's folder."""
    CLIENT = "client"
    """The request of the client that opened the session."""


TRUSTED_SOURCES = frozenset({Source.APP, Source.OPERATOR, Source.USER})
"""The sources that can grant something to their servers. A project and a client cannot."""


class Lifetime(StrEnum):
    """How long a link to the server is kept: for one run, for one session, or for the host, which shares it between sessions."""

    RUN = "run"
    SESSION = "session"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdio:
    """A program to start, reached through its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _EMPTY, repr=False, hash=False)
    network: tuple[str, ...] = ()
    """Hosts it may reach while confined, as `example.org` or `example.org:443`."""
    readable: tuple[str, ...] = ()
    """Paths it may read while confined, besides the session's folders."""
    writable: tuple[str, ...] = ()
    """Names such as `.git` that it may change in the session's folders while confined; otherwise they are read-only.
    `.` stands for a whole folder that is read-only because it contains the program of a direct server."""
    cwd: str = ""
    """The folder it is started in, as its entry names it: an absolute path, or `.` for the session's folder."""
    module_folders: tuple[str, ...] = ()
    """For a project's server: the folders of the project that its `PYTHONPATH` names, as relative paths. They belong to its program."""
    has_empty_folder: bool = False
    """Whether it is started in its own empty folder. If not, it is started in `cwd`, or in the session's folder if `cwd` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """A URL that serves streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: _EMPTY, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sse:
    """A URL that serves the deprecated SSE transport."""

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: _EMPTY, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcess:
    """A server that runs in the host's process: a built-in one, or an application's toolbox. `service` is its name."""

    service: str


def app_service(server: str) -> str:
    """The service name of an application's toolbox, from the name of its server. It differs from every built-in service name."""
    return f"app:{server}"


Transport: TypeAlias = Stdio | Http | Sse | InProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageGrant:
    """The package that the user approved for a confined server that a package runner starts."""

    version: str
    integrity: str
    """A hash of all files that were installed."""
    registries: tuple[str, ...] = ()
    """The hosts that it may be fetched from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """A server that a session could use, where its entry came from, and what it may do."""

    name: str
    source: Source
    transport: Transport
    origin: str = ""
    """The file or client that defined it."""
    digest: str = ""
    """A hash of the entry as written; the user approves this hash."""
    identity: str = ""
    """A hash of its origin, its name, and its command or address as written. Approvals of its tools are stored under this hash."""
    min_trust: Trust = Trust.DIRECT
    """The lowest trust of a session that may use it."""
    always_confined: bool = False
    """Whether it runs confined in every session: its entry says so (`"confined": true`), or the user approved it as confined."""
    confines_what_it_runs: bool = False
    """Whether it confines what it runs. Such a server itself is not confined, even in sandboxed sessions. Only for built-in servers."""
    granted_paths: tuple[str, ...] | None = None
    """The paths outside of its roots that the user approved for its program. None if no approval limits them."""
    package: PackageGrant | None = None
    """The package that the user approved, if a package runner (`npx`, `uvx`, …) starts it."""
    grant: str = field(default="", repr=False)
    """The stored approval of the server as confined; empty if there is none, as for a server with the user's rights."""
    lifetime: Lifetime = Lifetime.SESSION
    pins_tools: bool = True
    """Whether new or changed tools need approval. If not, the hints of its tools, such as `readOnlyHint`, are ignored, except for
    servers of the application and built-in ones."""
    is_lazy: bool = False
    """Whether it is started by the first call of one of its tools, and not when the session is opened."""
    warm: int = 0
    """How many of its processes to start before sessions need them."""
    call_seconds: float | None = None
    """How long a call may take; None for the time in the settings (`links.call_seconds`)."""
    era: str = ""
    """The only era of MCP to use with it, `handshake` or `modern`; empty if both may be used."""
    folders: tuple[str, ...] = ()
    """Only sessions in one of these folders get the server; empty for sessions in every folder."""
    tools: Allowlist = ALLOW_ALL
    tool_patterns: tuple[tuple[ToolPattern, ...], ...] = field(default=(), compare=False)
    """Only tools that match a pattern of every group are offered. Not compared: sessions that differ in this can share a link."""
    allowed_requests: Allowlist = ALLOW_NONE
    """The kinds of requests (roots, sampling, elicitation) that its entry grants (`asks`). A confined server needs the grant for each kind.
    A remote one needs it for roots, and in a sandboxed session for each kind."""
    confinement: Confinement | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The values of secret variables that its entry refers to; they are masked."""

    def allows_tool(self, tool: str) -> bool:
        return self.tools.allows(tool) and all(
            any(pattern.matches(self.name, tool) for pattern in group) for group in self.tool_patterns
        )

    def trust_in(self, session: Trust) -> Trust:
        """The trust that it has in a session: the lower of the session's and its own."""
        return Trust.SANDBOXED if self.always_confined else session

    def context_for_server(self, context: SessionContext) -> SessionContext:
        """The context that the server gets: that of the session, with the trust that the server has."""
        if not self.always_confined or context.trust_level is Trust.SANDBOXED:
            return context
        return replace(context, trust_level=Trust.SANDBOXED)

    def may_request(self, what: str) -> bool:
        """Whether the server may send this kind of request, as far as its confinement decides. One that is not confined may send every kind."""
        return self.confinement is None or self.allowed_requests.allows(what)

    def may_be_connected_by(self, trust: Trust) -> bool:
        """Whether a session of this trust may connect to it. For a sandboxed session, a local program must be confined, or confine what it runs."""
        if trust is _DIRECT:
            return True
        return self.may_be_used_by(trust) and (
            self.confinement is not None
            or self.confines_what_it_runs
            or not isinstance(self.transport, Stdio)
        )

    def may_be_used_by(self, trust: Trust) -> bool:
        """Whether a session of this trust may use it. A sandboxed session also gets the servers that its client brings."""
        return trust is Trust.DIRECT or self.min_trust is Trust.SANDBOXED or self.source is Source.CLIENT
