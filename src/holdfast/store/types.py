"""The types that a store takes and returns."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from holdfast.model.context import SessionContext
from holdfast.model.event import MAIN_AGENT_ORIGIN, Event, Origin
from holdfast.model.ids import SessionId
from holdfast.model.json import Json, JsonObject
from holdfast.store.clock import NEVER, from_microseconds
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
    """What opened the session: `acp`, `chat`, `cli`, `gateway` or `python`."""
    settings: JsonObject = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """The state of a session after its last event."""

    context: SessionContext
    title: str
    tags: tuple[str, ...]
    source: str
    settings: JsonObject
    state: SessionState
    created: datetime
    updated: datetime
    last_seq: int
    """The number of the last event; 0 if there is none."""
    open_turn: str
    """The id of the turn that has not ended; empty if there is none."""
    lease: "Lease | None" = field(default=None, compare=False)
    """The lease of the hold on the session, even if its owner is dead; None if the session is not held."""
    read_at: datetime = field(default=NEVER, compare=False)
    """The store's time when this session was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """Fields of a session to change; None leaves a field unchanged."""

    title: str | None = None
    tags: tuple[str, ...] | None = None
    settings: JsonObject | None = None
    cwd: str | None = None
    roots: tuple[str, ...] | None = None


# A struct, because a dataclass takes longer to create. An event is never in a reference cycle, so gc=False.
class StoredEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event of a session, with its number, its time in microseconds since 1970, and its origin."""

    seq: int
    at_microseconds: int
    event: Event
    key: str | None = None
    agent: str = ""
    parent_call: str = ""
    cause: str = ""

    @property
    def at(self) -> datetime:
        return from_microseconds(self.at_microseconds)

    @property
    def origin(self) -> Origin:
        """The agent, the call and the cause of the event."""
        if not (self.agent or self.parent_call or self.cause):
            return MAIN_AGENT_ORIGIN
        return Origin(agent=self.agent, parent_call=self.parent_call, cause=self.cause)


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """The number of an event in its session, and its time in microseconds since 1970.

    `is_new` is False if an event with the same key was already stored.
    """

    seq: int
    is_new: bool
    at_microseconds: int
    size: int = 0
    """How many bytes were stored for the event; 0 if it is not new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A message or a title that contains the words."""

    session: StoredSession
    message_id: str
    """Empty for a title."""
    seq: int
    """The number of the message's first event; 0 for a title."""
    snippet: str
    """The part of the text around the first of the words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A page of results, and the cursor for the next page, which is None on the last page."""

    items: tuple[T, ...]
    cursor: str | None = None


APPROVED_ON_FIRST_USE = "first use"
"""`Approval.by` if no person approved. The tools that a server has when it is first used are approved in this way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An approval of something, such as a server or a tool, exactly as it was shown."""

    key: str
    """What was approved, as JSON: for example `["server", "/home/ada/shop/.mcp.json", "files"]`."""
    content_hash: str
    """A hash of what was approved, such as the definition of a tool."""
    by: str
    """The name of the user who approved it, or `APPROVED_ON_FIRST_USE`."""
    at: datetime


@dataclass(frozen=True, slots=True)
class Hold:
    """The right to write to one session. Every write to a session needs it.

    Each hold of a store has a higher epoch than all earlier ones. A hold ends when it is released, when its session is
    deleted, or when the session is acquired again; from then on, writes with it are refused.
    """

    session_id: SessionId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Which process has the hold on a session, and until when."""

    session_id: SessionId
    epoch: int
    """The epoch of the hold."""
    holder_id: str
    """The random id of the open store that has the hold."""
    owner: Owner
    """The process of that store."""
    expires_at: datetime
    """When the lease expires if other processes cannot check the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxMessage:
    """A message from one session to another."""

    message_id: str
    sender: SessionId
    sender_title: str
    target: SessionId
    text: str
    sent: datetime = NEVER
    """When the store stored the message. The store sets this field."""
    delivered: int = 0
    """The number of the target's event that contains the message; 0 if the message is not delivered yet."""


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the audit: its number in its book, its text, and the digest that chains it to the previous row.

    Invalid UTF-8, which only an edit of the file can cause, is decoded with `surrogateescape`.
    """

    book: int = 0
    """A store has one book, number 0, or one for each host that writes to it. Each book is a separate chain."""
    seq: int
    body: str
    digest: bytes
