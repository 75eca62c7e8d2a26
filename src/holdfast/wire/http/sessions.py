"""The sessions of handshake-era clients over HTTP, by their `Mcp-Session-Id`."""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.frame import Id
from holdfast.wire.http.limits import HttpLimits
from holdfast.wire.mcp.server import ClientInfo


@dataclass(slots=True, kw_only=True, eq=False)
class HttpSession:
    """The session of a client that has sent `initialize`."""

    session_id: str
    client: ClientInfo
    owner: str
    last_used: float
    running: dict[Id, Callable[[], None]] = field(default_factory=dict[Id, Callable[[], None]])
    """The requests in flight, each with the function that cancels it."""
    is_listening: bool = False
    """Whether the client has its GET stream open."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def cancel(self, request_id: Id) -> None:
        """Cancel a request of this session."""
        if (cancel := self.running.get(request_id)) is not None:
            cancel()

    @property
    def is_busy(self) -> bool:
        return bool(self.running or self.is_listening)


def _ignore(session_id: str) -> None:
    pass


class HttpSessions:
    """All sessions. Their number is limited, idle ones are ended, and each can be used only by its owner."""

    def __init__(self, limits: HttpLimits, on_end: Callable[[str], None] = _ignore) -> None:
        self._limits = limits
        self._on_end = on_end
        self._sessions: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, client: ClientInfo, owner: str) -> HttpSession:
        """Open a session for a client that has sent `initialize`."""
        self.expire()
        if len(self._sessions) >= self._limits.sessions:
            raise HoldfastError(
                codes.TOO_MANY_SESSIONS, f"{self._limits.sessions} sessions are already open."
            )
        session = HttpSession(
            session_id=secrets.token_hex(16), client=client, owner=owner, last_used=time.monotonic()
        )
        self._sessions[session.session_id] = session
        return session

    def find(self, session_id: str | None, owner: str) -> HttpSession:
        """Find a session by id. An ended session and another owner's session both count as unknown."""
        if session_id is None:
            raise HoldfastError(
                codes.BAD_HTTP,
                "Send initialize first, then send the Mcp-Session-Id that it returned with every request.",
            )
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner or self._is_idle(session):
            raise HoldfastError(codes.UNKNOWN_MCP_SESSION, "There is no such session.")
        session.last_used = time.monotonic()
        return session

    def end(self, session: HttpSession) -> None:
        """End a session and cancel its requests."""
        if self._sessions.pop(session.session_id, None) is None:
            return
        for cancel in list(session.running.values()):
            cancel()
        session.ended.set()
        self._on_end(session.session_id)

    def end_all(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session)

    def expire(self) -> None:
        """End the idle sessions."""
        for session in [session for session in self._sessions.values() if self._is_idle(session)]:
            self.end(session)

    def _is_idle(self, session: HttpSession) -> bool:
        return not session.is_busy and time.monotonic() - session.last_used > self._limits.idle_seconds
