"""What a store keeps, as frozen values."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from holdfast.model.context import SessionContext
from holdfast.model.event import Event
from holdfast.model.ids import SessionId
from holdfast.model.json import Json, JsonObject
from holdfast.store.clock import from_stored
from holdfast.store.owner import Owner

T = TypeVar("T")


class SessionState(StrEnum):
    """Whether a session's servers are up."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A session to keep."""

    context: SessionContext
    title: str = ""
    tags: tuple[str, ...] = ()
    source: str = ""
    settings: JsonObject = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session as it stands after its last event."""

    context: SessionContext
    title: str
    tags: tuple[str, ...]
    source: str
    settings: JsonObject
    state: SessionState
    created: datetime
    updated: datetime
    last_seq: int
    open_turn: str
    lease: "Lease | None" = field(default=None, compare=False)
    """Who took hold of it last, dead or alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """What to change about a session; None leaves a thing as it is."""

    title: str | None = None
    tags: tuple[str, ...] | None = None
    settings: JsonObject | None = None
    cwd: str | None = None
    roots: tuple[str, ...] | None = None


# Made for every event that is read: a struct takes a sixth of the time of a dataclass. It cannot be part of a cycle.
class StoredEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event of a session, with its place in the log and its time in microseconds since 1970."""

    seq: int
    microseconds: int
    event: Event
    key: str | None = None

    @property
    def at(self) -> datetime:
        """When the event was stored."""
        return from_stored(self.microseconds)


class Appended(msgspec.Struct, frozen=True):
    """Where an event stands; `new` is False when a retry found it there already."""

    seq: int
    new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message, or a title (then `message_id` is empty), that has the words."""

    session: StoredSession
    message_id: str
    seq: int
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of the answers, and the cursor of the next ones."""

    items: tuple[T, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurn:
    """A turn that began and has no end yet."""

    session_id: SessionId
    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person agreed to exactly this content of this thing."""

    what: str
    content_hash: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who holds a session; on another machine only until a moment."""

    session_id: SessionId
    holder: str
    owner: Owner
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One line of the audit as it is kept: its place, its text, and the digest that chains it to the one before.

    Bytes that are no text, which only an edit of the file can leave there, are in the body as `surrogateescape` has them.
    """

    seq: int
    body: str
    digest: bytes
