"""The sessions that are open in one host."""

import asyncio
import logging
from weakref import WeakValueDictionary

from holdfast.builtin.call_facts import CallFacts
from holdfast.connect.scope import Scope
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.session.session import Session

log = logging.getLogger(__name__)


class LiveSessions:
    """The open sessions of a host, by id. A session is removed when it has been closed."""

    def __init__(self) -> None:
        self._sessions: dict[SessionId, Session] = {}
        self._options: dict[SessionId, OpenOptions] = {}
        self._opening: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()

    def add(self, session: Session, options: OpenOptions) -> None:
        """Add a session that is being opened with these options."""
        self._sessions[session.context.session_id] = session
        self._options[session.context.session_id] = options

    def remove(self, session_id: SessionId) -> None:
        """Remove a session that was closed."""
        self._sessions.pop(session_id, None)
        self._options.pop(session_id, None)

    def find(self, session_id: str) -> Session | None:
        """The session with this id; None if it is not open, or is being closed."""
        session = self._sessions.get(SessionId(session_id))
        return None if session is None or session.is_closing else session

    def require(self, session_id: str) -> Session:
        """The session with this id, such as the one that calls a built-in tool. Raises SCOPE_CLOSED if it is not open."""
        session = self.find(session_id)
        if session is None:
            raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")
        return session

    async def publish_plan(self, caller: SessionId, facts: CallFacts, entries: list[JsonObject]) -> None:
        """Store and show the plan of the agent that called the tool `plan.update`."""
        await self.require(caller).publish_plan(entries, facts.agent)

    def any_in_workspace(self) -> bool:
        """Whether a session of a workspace is open."""
        return any(session.context.workspace_id for session in self._sessions.values())

    def options_of(self, session: Session) -> OpenOptions:
        """The options that a live session was opened with."""
        return self._options[session.context.session_id]

    async def wait_closed(self, session_id: SessionId) -> None:
        """If this session is being closed, wait until it is closed."""
        session = self._sessions.get(session_id)
        if session is not None and session.is_closing:
            await session.close()

    def find_by_scope(self, scope: Scope) -> Session:
        """The session that this scope belongs to. Raises SCOPE_CLOSED if it is not open in this host."""
        session = self._sessions.get(scope.context.session_id)
        if session is None or session.scope is not scope.session_scope:
            raise HoldfastError(
                codes.SCOPE_CLOSED,
                f"This code belongs to the session {scope.context.session_id}, which is not open in this host.",
                hint="Use the host that opened the session.",
            )
        return session

    def lock(self, session_id: SessionId) -> asyncio.Lock:
        """The lock to hold while a stored session is opened, so that two callers do not open it twice."""
        return self._opening.setdefault(session_id, asyncio.Lock())

    def refresh_tools(self, spec: ServerSpec, scope: Scope | None) -> None:
        """List a server's tools again: in the session of this scope or, if sessions share the server, in all."""
        for session in [*self._sessions.values()]:
            if scope is None or session.scope is scope.session_scope:
                session.refresh_tools(spec.name)

    async def close_all(self, reason: str) -> None:
        closing = [session.close(reason) for session in self._sessions.values()]
        for failure in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(failure, Exception):
                log.error("could not close a session cleanly", exc_info=failure)
