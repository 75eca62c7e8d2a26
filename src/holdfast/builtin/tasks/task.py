"""A task, and the ways its status may go."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Where a task stands."""

    OPEN = "open"
    STARTED = "started"
    DONE = "done"
    DROPPED = "dropped"

    @property
    def next(self) -> "tuple[Status, ...]":
        """Where it can go from here."""
        match self:
            case Status.OPEN:
                return (Status.STARTED, Status.DROPPED)
            case Status.STARTED:
                return (Status.DONE, Status.OPEN, Status.DROPPED)
            case Status.DONE | Status.DROPPED:
                return (Status.OPEN,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something to do in a workspace; `number` is unique there."""

    number: int
    title: str
    body: str
    status: Status
    created_at: str
    updated_at: str
    created_by: str
    """The session that added it; empty when nobody vouched for one."""
