"""The types that a store takes and returns."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from holdfast.model.context import SessionContext
from holdfast.model.event import Event
from holdfast.model.ids import SessionId
from holdfast.model.json import Json, JsonObject
from holdfast.store.clock import from_microseconds
from holdfast.store.owner import Owner

T = TypeVar("T")


class SessionState(StrEnum):
    """Whether a session is open or closed."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A session to store."""

    context: SessionContext
    title: str = ""
    tags: tuple[str, ...] = ()
    source: str = ""
    settings: JsonObject = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session after its last event."""

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
    """Present until it is released or replaced, even if its owner is dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """Fields of a session to change; None leaves a field unchanged."""

    title: str | None = None
    tags: tuple[str, ...] | None = None
    settings: JsonObject | None = None
    cwd: str | None = None
    roots: tuple[str, ...] | None = None


# Created for every event that is read: a struct takes a sixth of the time of a dataclass. It is never in a cycle (gc=False).
class StoredEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event of a session, with its number and its time in microseconds since 1970."""

    seq: int
    microseconds: int
    event: Event
    key: str | None = None

    @property
    def at(self) -> datetime:
        """When the event was stored."""
        return from_microseconds(self.microseconds)


class AppendResult(msgspec.Struct, frozen=True):
    """The number of an event in its session. `is_new` is False if an event with the same key was already there."""

    seq: int
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A message or a title (then `message_id` is empty) that contains the words."""

    session: StoredSession
    message_id: str
    seq: int
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of the results, and the cursor for the next ones."""

    items: tuple[T, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The approval of a server or a tool with exactly this content."""

    key: str
    """What was approved, for example `["server", "/home/ada/shop/.mcp.json", "files"]`."""
    content_hash: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of one open store to write to a session."""

    session_id: SessionId
    holder: str
    """The random id of the store that holds the lease; one process may have several stores open."""
    owner: Owner
    """The process of that store. When it is dead, the lease has expired."""
    expires_at: datetime
    """When the lease expires if other processes cannot check the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One row of the audit: its number, its text, and the digest that chains it to the previous row.

    Invalid UTF-8, which only an edit of the file can cause, is decoded with `surrogateescape`.
    """

    seq: int
    body: str
    digest: bytes
