"""The clients of the handshake era that are connected over HTTP, by their `Mcp-Session-Id`."""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.frame import Id
from holdfast.wire.http.terms import Terms
from holdfast.wire.mcp.server import Caller


@dataclass(slots=True, kw_only=True, eq=False)
class HttpSession:
    """One client that shook hands: who it is, what it waits for, and what is to be told to it."""

    session_id: str
    caller: Caller
    owner: str
    used: float
    outbox: asyncio.Queue[bytes]
    running: dict[Id, Callable[[], None]] = field(default_factory=dict[Id, Callable[[], None]])
    """What is being answered, and how to take it back."""
    streams: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def cancel(self, identity: Id) -> None:
        """Take back one request of this client; nobody else's can be named here."""
        if (take_back := self.running.get(identity)) is not None:
            take_back()

    @property
    def busy(self) -> bool:
        """Whether a request of it is being answered, or it listens."""
        return bool(self.running or self.streams)


def _ignore(session_id: str) -> None:
    """Nobody wants to know."""


class HttpSessions:
    """All of them: bounded in number, forgotten when idle, and unknown to anybody but their owner."""

    def __init__(self, terms: Terms, ended: Callable[[str], None] = _ignore) -> None:
        self._terms = terms
        self._ended = ended
        self._sessions: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, caller: Caller, owner: str) -> HttpSession:
        """A new session for a client that shook hands."""
        self.expire()
        if len(self._sessions) >= self._terms.sessions:
            raise HoldfastError(codes.TOO_MANY_SESSIONS, f"{self._terms.sessions} sessions are open already.")
        session = HttpSession(
            session_id=secrets.token_hex(16),
            caller=caller,
            owner=owner,
            used=time.monotonic(),
            outbox=asyncio.Queue(self._terms.outbox),
        )
        self._sessions[session.session_id] = session
        return session

    def find(self, session_id: str | None, owner: str) -> HttpSession:
        """The session of this id; one that is over, or somebody else's, looks like one that never was."""
        if session_id is None:
            raise HoldfastError(
                codes.BAD_HTTP,
                "Send initialize first, then the Mcp-Session-Id it brought with every request.",
            )
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner or self._is_idle(session):
            raise HoldfastError(codes.UNKNOWN_MCP_SESSION, "There is no such session.")
        session.used = time.monotonic()
        return session

    def end(self, session: HttpSession) -> None:
        """The client said goodbye, or is taken to have."""
        if self._sessions.pop(session.session_id, None) is None:
            return
        for take_back in list(session.running.values()):
            take_back()
        session.ended.set()
        self._ended(session.session_id)

    def end_all(self) -> None:
        """The server goes down."""
        for session in list(self._sessions.values()):
            self.end(session)

    def expire(self) -> None:
        """End the sessions that nobody used for long."""
        for session in [session for session in self._sessions.values() if self._is_idle(session)]:
            self.end(session)

    def _is_idle(self, session: HttpSession) -> bool:
        return not session.busy and time.monotonic() - session.used > self._terms.idle_seconds
