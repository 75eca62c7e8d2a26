"""Which servers a session gets: who stands, who fell, and why."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from holdfast.model.server import ServerSpec


class Stage(StrEnum):
    """The stages of resolving, in their order."""

    LOAD = "load"
    VALIDATE = "validate"
    ADMIT = "admit"
    SELECT = "select"
    INJECT = "inject"
    CONFINE = "confine"
    CONNECT = "connect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One server turned away: by which stage, and the reason to show a person."""

    server: str
    stage: Stage
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """Something about a server that stands which a person should know."""

    server: str
    stage: Stage
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The servers that stand, the refusals of those that fell, and what to beware of."""

    servers: tuple[ServerSpec, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    cautions: tuple[Caution, ...] = ()

    def sift(self, objection: Callable[[ServerSpec], str | None], *, stage: Stage) -> "Resolution":
        """Keep the servers nobody objects to; each other one falls with the reason given."""
        kept: list[ServerSpec] = []
        fallen: list[Refusal] = []
        for server in self.servers:
            reason = objection(server)
            if reason is None:
                kept.append(server)
            else:
                fallen.append(Refusal(server=server.name, stage=stage, reason=reason))
        return replace(self, servers=tuple(kept), refusals=(*self.refusals, *fallen))
