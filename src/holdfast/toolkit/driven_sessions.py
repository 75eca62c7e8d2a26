"""Driven sessions: browsers, apps or shells that a server drives for its callers. The server chooses their ids."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from holdfast.model import codes
from holdfast.toolkit.call import current_call
from holdfast.toolkit.errors import ToolError

T = TypeVar("T")
Dispose: TypeAlias = Callable[[T], Awaitable[None] | None]

DISPOSE_SECONDS = 5.0  # how long the disposal of one driven session may take

log = logging.getLogger(__name__)


class DrivenSessions(Generic[T]):
    """The browsers, apps or shells that a server drives, not the sessions of its callers. Each is disposed of at most once.

    Each driven session belongs to the `Call.owner` of the call that added it. No other caller can see or use it. A call
    without an owner fails.
    """

    def __init__(self, dispose: Dispose[T]) -> None:
        self._dispose = dispose
        self._sessions: dict[str, dict[str, T]] = {}  # by owner and id

    def add(self, session_id: str, session: T) -> T:
        """Add a driven session for the caller; raises BAD_ARGUMENT when the caller already has one with this id."""
        if not session_id:
            raise ToolError(codes.BAD_ARGUMENT, "The session id is empty. Pass an id.")
        sessions = self._sessions.setdefault(_current_owner(), {})
        if session_id in sessions:
            raise ToolError(codes.BAD_ARGUMENT, f"There is a session {session_id[:80]!r} already.")
        sessions[session_id] = session
        _report_session(session_id)
        return session

    def get(self, session_id: str = "") -> T:
        """The caller's driven session with this id; without an id, the only one that the caller has."""
        ids = self.ids()
        if session_id:
            _report_session(session_id)
            if session_id not in ids:
                running = f"Running: {', '.join(ids)}." if ids else "None is running."
                raise ToolError(
                    codes.NOT_RUNNING, f"There is no session {session_id[:80]!r}. {running}", available=[*ids]
                )
        elif len(ids) == 1:
            session_id = ids[0]
        elif ids:
            raise ToolError(
                codes.BAD_ARGUMENT,
                f"Several sessions are running. Pass the id of one: {', '.join(ids)}.",
                available=[*ids],
            )
        else:
            raise ToolError(codes.NOT_RUNNING, "Nothing is running.", available=[])
        _report_session(session_id)
        return self._sessions[_current_owner()][session_id]

    def ids(self) -> tuple[str, ...]:
        """The ids of the caller's driven sessions, oldest first."""
        return tuple(self._sessions.get(_current_owner(), ()))

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def has_owner(self, owner: str) -> bool:
        return owner in self._sessions

    async def remove(self, session_id: str) -> bool:
        """Dispose of one of the caller's driven sessions; False when there is none with this id."""
        return await self._dispose_one(_current_owner(), session_id)

    async def dispose_all(self) -> None:
        """Dispose of all driven sessions of all callers. A failure is logged; the others are still disposed of."""
        await asyncio.gather(*map(self.dispose_owned, list(self._sessions)))

    async def dispose_owned(self, owner: str) -> None:
        """Dispose of all driven sessions of one owner. A failure is logged; the others are still disposed of."""
        ids = list(self._sessions.get(owner, ()))
        await asyncio.gather(*(self._dispose_or_log(owner, session_id) for session_id in ids))

    async def _dispose_or_log(self, owner: str, session_id: str) -> None:
        try:
            async with asyncio.timeout(DISPOSE_SECONDS):
                await self._dispose_one(owner, session_id)
        except Exception:
            log.exception("could not dispose of a driven session", extra={"driven": session_id})

    async def _dispose_one(self, owner: str, session_id: str) -> bool:
        sessions = self._sessions.get(owner, {})
        if session_id not in sessions:
            return False
        session = sessions.pop(session_id)
        if not sessions:
            del self._sessions[owner]
        done = self._dispose(session)
        if inspect.isawaitable(done):
            await done
        return True


SessionManager = DrivenSessions
"""An earlier name of `DrivenSessions`."""


def _current_owner() -> str:
    """The owner of the current call. Outside of calls, an empty string; `Call.owner` itself is never empty."""
    call = current_call()
    return call.owner if call is not None else ""


def _report_session(session_id: str) -> None:
    """Put the id of the driven session into the envelope of the current call."""
    call = current_call()
    if call is not None:
        call.result_meta.session_id = session_id
