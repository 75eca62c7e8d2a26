"""What the team tools need from the host. Every method acts for the session `caller`, whose context decides what it may reach."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.builtin.call_facts import CallFacts
from holdfast.model.ids import SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """Another session of the workspace."""

    session_id: str
    title: str
    state: str
    updated: datetime
    source: str = ""
    """What opened the session, such as `acp`."""
    tags: tuple[str, ...] = ()
    is_child: bool = False
    """Whether the caller created it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message to the caller's session."""

    message_id: str
    sender: str
    sender_title: str
    text: str
    sent: datetime
    delivered: bool
    """Whether it is stored in a turn of the caller's session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A message or a title that contains the words of a search."""

    session_id: str
    title: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChild:
    """A session to create for the caller."""

    title: str
    agent: str
    """The name of an agent definition; empty for the caller's own agent."""
    initial_message: str
    detached: bool = False
    """Whether it goes on when the caller's session ends."""


class Team(Protocol):
    """The sessions that one session can work with."""

    async def create_session(self, caller: SessionId, facts: CallFacts, child: NewChild) -> str:
        """Create a session in the caller's workspace, with at most its rights. Return its id."""
        ...

    async def send_message(self, caller: SessionId, facts: CallFacts, target: str, text: str) -> str:
        """Send a message, and return its id. The error does not say whether a target that the caller may not reach exists."""
        ...

    async def read_inbox(self, caller: SessionId, limit: int) -> list[ReceivedMessage]:
        """Return the latest messages to the caller, including those that were delivered."""
        ...

    async def list_sessions(self, caller: SessionId, limit: int) -> list[SessionSummary]:
        """Return the other sessions of the workspace that the caller may reach, the latest first."""
        ...

    async def search_sessions(
        self, caller: SessionId, query: str, *, limit: int, source: str, tags: tuple[str, ...]
    ) -> list[SearchHit]:
        """Return the messages and titles that contain all words of `query`, in the sessions that the caller may reach."""
        ...
