"""The MCP sessions of handshake-era clients over HTTP, by their `Mcp-Session-Id`."""

import asyncio
import secrets
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.light_event import LightEvent
from holdfast.wire.http.limits import CallerQuota, HttpLimits
from holdfast.wire.http.messages_to_client import MessagesToClient
from holdfast.wire.mcp.server import ClientInfo
from holdfast.wire.messages import Id


@dataclass(slots=True, kw_only=True, eq=False)
class HttpSession:
    """The MCP session of a client that has sent `initialize`."""

    session_id: str
    client: ClientInfo
    caller_id: str
    last_used: float
    running: dict[Id, Callable[[], None]] = field(default_factory=dict[Id, Callable[[], None]])
    """The requests in flight, each with the function that cancels it."""
    is_listening: bool = False
    """Whether the client has its GET stream open."""
    ended: asyncio.Event = field(default_factory=LightEvent)
    outgoing: MessagesToClient = field(default_factory=MessagesToClient)

    def cancel(self, request_id: Id) -> None:
        if (cancel := self.running.get(request_id)) is not None:
            cancel()

    @property
    def is_busy(self) -> bool:
        """Whether the session is in use, so that it does not expire."""
        return bool(self.running or self.is_listening)


def _do_nothing(session_id: str) -> None:
    pass


class HttpSessions:
    """All open sessions. Their number is limited, idle sessions expire, and a session can be used only by the caller that opened it.

    A session that was never used after `initialize` expires sooner. If there are too many sessions, the oldest session that was never used is ended.
    """

    def __init__(self, limits: HttpLimits, on_end: Callable[[str], None] = _do_nothing) -> None:
        self._limits = limits
        self._on_end = on_end
        self._quota = CallerQuota(total=limits.sessions, share=limits.sessions_per_caller)
        self._used: dict[str, HttpSession] = {}  # least recently used first
        self._unused: dict[str, HttpSession] = {}  # oldest first
        self._sweep_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._used) + len(self._unused)

    def open(self, client: ClientInfo, caller_id: str) -> HttpSession:
        """Open a session for a client that has sent `initialize`."""
        if len(msgspec.json.encode(client)) > self._limits.client_info_bytes:
            raise HoldfastError(
                codes.TOO_LARGE,
                f"The client's name, capabilities and _meta have more than {self._limits.client_info_bytes} bytes. Send shorter values.",
            )
        self.expire()
        self._make_room(caller_id)
        session = HttpSession(
            session_id=secrets.token_hex(16), client=client, caller_id=caller_id, last_used=time.monotonic()
        )
        self._unused[session.session_id] = session
        if self._sweep_timer is None:
            self._schedule_sweep()
        return session

    def find(self, session_id: str | None, caller_id: str) -> HttpSession:
        """Find a session by id, and note that it is used now. Raise the same error if it has ended, is another caller's, or never existed."""
        if session_id is None:
            raise HoldfastError(
                codes.BAD_HTTP,
                "Send initialize first. Then send the Mcp-Session-Id from its response in every request.",
            )
        session = self._used.get(session_id) or self._unused.get(session_id)
        now = time.monotonic()
        if session is None or session.caller_id != caller_id or self._is_expired(session, now):
            raise HoldfastError(
                codes.UNKNOWN_MCP_SESSION,
                "There is no such session. Send initialize again to open a new one.",
            )
        session.last_used = now
        self._remove(session_id)
        self._used[session_id] = session
        return session

    def end(self, session: HttpSession) -> None:
        """End a session and cancel its requests."""
        if self._remove(session.session_id) is None:
            return
        self._quota.release(session.caller_id)
        for cancel in list(session.running.values()):
            cancel()
        session.outgoing.end()
        session.ended.set()
        self._on_end(session.session_id)

    def end_all(self) -> None:
        for session in [*self._used.values(), *self._unused.values()]:
            self.end(session)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def expire(self) -> None:
        """End the sessions whose last use is longer ago than their limit allows, except those in use."""
        now = time.monotonic()
        for sessions, seconds in (
            (self._used, self._limits.idle_seconds),
            (self._unused, self._limits.unused_seconds),
        ):
            expired: list[HttpSession] = []
            for session in sessions.values():
                if now - session.last_used <= seconds:
                    break  # the following sessions were used later
                if not session.is_busy:
                    expired.append(session)
            for session in expired:
                self.end(session)

    def _schedule_sweep(self) -> None:
        # Often enough that a session ends soon after its limit, but not so often that the sweeps need much time.
        seconds = max(0.05, min(30.0, self._limits.idle_seconds / 4, self._limits.unused_seconds / 4))
        # In an empty context: the timer would keep the current context, and with it the current request, in memory.
        self._sweep_timer = asyncio.get_running_loop().call_later(
            seconds, self._expire_again, context=Context()
        )

    def _expire_again(self) -> None:
        self._sweep_timer = None
        self.expire()
        if len(self):
            self._schedule_sweep()

    def _make_room(self, caller_id: str) -> None:
        """Count a new session of this caller. If there are too many, first end the oldest session that was never used."""
        while not self._quota.try_acquire(caller_id):
            is_own_limit = self._quota.would_exceed_share(caller_id)
            unused = (
                session
                for session in self._unused.values()
                if not is_own_limit or session.caller_id == caller_id
            )
            oldest = next(unused, None)
            if oldest is None:
                open_sessions = (
                    f"{self._quota.share} sessions of this caller"
                    if is_own_limit
                    else f"{self._quota.total} sessions"
                )
                raise HoldfastError(
                    codes.TOO_MANY_SESSIONS,
                    f"{open_sessions} are already open. End one with DELETE, or try again later.",
                )
            self.end(oldest)

    def _is_expired(self, session: HttpSession, now: float) -> bool:
        is_used = session.session_id in self._used
        seconds = self._limits.idle_seconds if is_used else self._limits.unused_seconds
        return not session.is_busy and now - session.last_used > seconds

    def _remove(self, session_id: str) -> HttpSession | None:
        return self._used.pop(session_id, None) or self._unused.pop(session_id, None)
