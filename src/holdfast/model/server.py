"""How to reach an MCP server, and on whose word."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from holdfast.model.choice import ALL, NONE, Choice
from holdfast.model.launch import Confinement
from holdfast.model.trust import Trust

_EMPTY: Mapping[str, str] = MappingProxyType({})


class Source(StrEnum):
    """Where a server's entry came from; set by the loader, never by the entry."""

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
    """A program to start; it speaks on its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _EMPTY, repr=False, hash=False)
    network: tuple[str, ...] = ()
    """Hosts it may reach while it is confined."""
    readable: tuple[str, ...] = ()
    """What it may read besides its roots while it is confined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """An address that speaks streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: _EMPTY, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sse:
    """An address that speaks the deprecated SSE transport."""

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: _EMPTY, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcess:
    """A first-party server that lives in the host's own process, by the name that the host knows it by."""

    service: str


Transport: TypeAlias = Stdio | Http | Sse | InProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One server a session could have: on whose word (`source`, `origin`), and what it may do."""

    name: str
    source: Source
    transport: Transport
    origin: str = ""
    """The file that named it, or the client."""
    digest: str = ""
    """A hash of the entry as it was written: what a person approves."""
    trust: Trust = Trust.DIRECT
    lifetime: Lifetime = Lifetime.SESSION
    tools: Choice = ALL
    asks: Choice = NONE
    """What it may ask back of the session while it is confined: roots, sampling, elicitation."""
    confinement: Confinement | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What its entry was given of the host's own secrets, wherever in it."""

    def may_ask(self, what: str) -> bool:
        """Whether it may ask this of the session: freely when it is not confined, else only what was granted."""
        return self.confinement is None or self.asks.allows(what)

    def fits(self, trust: Trust) -> bool:
        """Whether a session of this trust may be connected to it as it stands here: confined, where it must be."""
        if trust is Trust.DIRECT:
            return True
        return self.admits(trust) and (self.confinement is not None or not isinstance(self.transport, Stdio))

    def admits(self, trust: Trust) -> bool:
        """Whether a session of this trust may use it: marked for sandboxed use, or brought by its client."""
        return trust is Trust.DIRECT or self.trust is Trust.SANDBOXED or self.source is Source.CLIENT
