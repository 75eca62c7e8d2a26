"""How to reach an MCP server, and where its entry came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.process import Confinement
from holdfast.model.trust import Trust

FILES = "files"
"""The name of the built-in file server, which no other server can take."""
_EMPTY: Mapping[str, str] = MappingProxyType({})


class Source(StrEnum):
    """Where a server's entry came from; set by the loader, never by the entry itself."""

    BUILTIN = "builtin"
    HOST = "host"
    USER = "user"
    PROJECT = "project"
    CLIENT = "client"


class Lifetime(StrEnum):
    """How long a link to the server is kept: for one run, one session, or shared by the host's sessions."""

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
    """Hosts it may reach while confined."""
    readable: tuple[str, ...] = ()
    """What it may read while confined, besides its roots."""


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
    """A built-in server in the host's own process, by name."""

    service: str


Transport: TypeAlias = Stdio | Http | Sse | InProcess


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
    trust: Trust = Trust.DIRECT
    lifetime: Lifetime = Lifetime.SESSION
    tools: Allowlist = ALLOW_ALL
    allowed_requests: Allowlist = ALLOW_NONE
    """What it may request from the session while confined: roots, sampling, elicitation."""
    confinement: Confinement | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The host's own secrets that its entry refers to."""

    def may_request(self, what: str) -> bool:
        """Whether it may make this kind of request: any if it is not confined, else only those allowed."""
        return self.confinement is None or self.allowed_requests.allows(what)

    def may_connect(self, trust: Trust) -> bool:
        """Whether a session of this trust may connect to it, given its confinement."""
        if trust is Trust.DIRECT:
            return True
        return self.admits(trust) and (self.confinement is not None or not isinstance(self.transport, Stdio))

    def admits(self, trust: Trust) -> bool:
        """Whether a session of this trust may use it: sandboxed sessions need a mark for it, or their client to provide it."""
        return trust is Trust.DIRECT or self.trust is Trust.SANDBOXED or self.source is Source.CLIENT
