"""On what terms a host connects: deadlines, limits, and what it remembers from one time to the next."""

from dataclasses import dataclass, field

from holdfast.model.limits import DEFAULT, Limits
from holdfast.wire.mcp.eras import Era


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The same for every connection of a host. `eras` remembers what each server spoke, so that it is found once."""

    limits: Limits = DEFAULT
    connect_seconds: float = 30.0
    list_seconds: float = 30.0
    call_seconds: float = 600.0
    end_seconds: float = 2.0
    """How long a server may take to go by itself before it is ended."""
    eras: dict[str, Era] = field(default_factory=dict[str, Era])
