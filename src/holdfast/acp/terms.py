"""What every session of an editor starts with."""

from dataclasses import dataclass

from holdfast.model.trust import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The trust and the workspace that the command line asked for."""

    trust: Trust | None = None
    workspace: str = ""
