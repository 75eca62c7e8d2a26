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
class Resolution:
    """The servers that stand and the refusals of those that fell."""

    servers: tuple[ServerSpec, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def split(self, keep: Callable[[ServerSpec], bool], *, stage: Stage, reason: str) -> "Resolution":
        """Keep the servers that pass; each other one gets a refusal."""
        kept = tuple(server for server in self.servers if keep(server))
        fallen = tuple(
            Refusal(server=server.name, stage=stage, reason=reason)
            for server in self.servers
            if not keep(server)
        )
        return replace(self, servers=kept, refusals=self.refusals + fallen)
