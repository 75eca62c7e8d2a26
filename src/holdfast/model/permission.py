"""The modes of a session, whether a tool may be called, and the restrictions of a workspace, an agent or a client."""

from dataclasses import dataclass
from enum import StrEnum

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.tool_pattern import ToolPattern


class Mode(StrEnum):
    """What a session does with calls to tools that may change something."""

    ASK = "ask"
    """Asks the user, unless a rule or an earlier answer decides."""
    AUTO = "auto"
    """Makes the call without asking, unless a rule forbids that."""
    READ_ONLY = "read-only"
    """Refuses the call, unless a rule allows it."""


_LOWEST_FIRST = (Mode.READ_ONLY, Mode.ASK, Mode.AUTO)


class Access(StrEnum):
    """Whether a tool may be called."""

    ALLOWED = "allowed"
    MUST_ASK = "must ask"
    REFUSED = "refused"


class DoorKind(StrEnum):
    """Where a session is used from. The settings limit the mode for each."""

    ACP = "acp"
    CHAT = "chat"
    CLI = "cli"
    GATEWAY = "gateway"
    PYTHON = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRestriction:
    """What a workspace, an agent or a client forbids: it can refuse tools, demand questions and lower the mode."""

    deny: tuple[ToolPattern, ...] = ()
    ask: tuple[ToolPattern, ...] = ()
    max_mode: Mode = Mode.AUTO


NO_RESTRICTION = PermissionRestriction()


def lowest_mode(first: Mode, *others: Mode) -> Mode:
    """The mode that permits the least: `read-only` is below `ask`, and `ask` is below `auto`."""
    return min((first, *others), key=_LOWEST_FIRST.index)


def parse_mode(raw: object) -> Mode:
    """Parse a mode in a settings file. The message of the ValueError is meant to follow the name of the setting."""
    for mode in Mode:
        if raw == mode.value:
            return mode
    raise ValueError(f"must be one of {', '.join(_LOWEST_FIRST)}")


def require_mode(name: object) -> Mode:
    """The mode with this name, which a client or an application gave. Raise BAD_ARGUMENT if there is none."""
    try:
        return Mode(str(name))
    except ValueError:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{str(name)[:40]!r} is not a mode. The modes are: {', '.join(_LOWEST_FIRST)}.",
        ) from None
