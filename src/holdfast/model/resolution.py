"""Which servers a session gets, which were refused, and why."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from holdfast.model.server import ServerSpec
from holdfast.model.visible_text import display_name, display_path, escape_hidden


class Stage(StrEnum):
    """The stages on the way of a server into a session, in order."""

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", escape_hidden(self.reason))

    @property
    def display_name(self) -> str:
        """The name for messages. It is quoted if it could pose as a text of Holdfast: a project or a client may have chosen it."""
        return display_name(self.server)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWarning:
    """A warning for the user, either about a server that was not refused or about a folder of the session."""

    server: str = ""
    """The server's name; empty if the warning is about a folder."""
    folder: str = ""
    """The folder, such as one that lowers the session's trust; empty if the warning is about a server."""
    stage: Stage
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", escape_hidden(self.text))

    @property
    def subject(self) -> str:
        """What the warning is about: the server or the folder, for messages."""
        return display_name(self.server) if self.server else display_path(self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The servers that remain, the refusals, and the warnings."""

    servers: tuple[ServerSpec, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[SessionWarning, ...] = ()

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
        return replace(self, servers=tuple(kept), refusals=(*self.refusals, *refused)) if refused else self
