"""Which servers a session gets, which were refused, and why."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from holdfast.model.server import ServerSpec


class Stage(StrEnum):
    """The stages of resolving, in order."""

    LOAD = "load"
    VALIDATE = "validate"
    ADMIT = "admit"
    SELECT = "select"
    INJECT = "inject"
    CONFINE = "confine"
    CONNECT = "connect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refused server, with the stage and the reason to show to the user."""

    server: str
    """Its name. If the name is unknown: the path of the config file, or `mcpServers[0]` for a client's first entry."""
    stage: Stage
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWarning:
    """A warning for the user about a server that was not refused, or about the session's trust."""

    server: str
    """Its name; or a folder of the session, if the warning is about the session's trust."""
    stage: Stage
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The servers that remain, the refusals, and the warnings."""

    servers: tuple[ServerSpec, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[ServerWarning, ...] = ()

    def refuse_if(self, why: Callable[[ServerSpec], str | None], *, stage: Stage) -> "Resolution":
        """Refuse each server for which `why` returns a reason."""
        kept: list[ServerSpec] = []
        refused: list[Refusal] = []
        for server in self.servers:
            reason = why(server)
            if reason is None:
                kept.append(server)
            else:
                refused.append(Refusal(server=server.name, stage=stage, reason=reason))
        return replace(self, servers=tuple(kept), refusals=(*self.refusals, *refused))
