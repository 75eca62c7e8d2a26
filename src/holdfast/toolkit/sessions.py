"""Driven sessions: browsers, apps or shells that a server controls for its callers, by the ids that they already have."""

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

DISPOSE_SECONDS = 5.0  # per session, when the server ends

log = logging.getLogger(__name__)


class SessionManager(Generic[T]):
    """Finds a caller's sessions and disposes of each exactly once.

    A server may work for several callers at once. No caller can see or use another's sessions.
    """

    def __init__(self, dispose: Dispose[T]) -> None:
        self._dispose = dispose
        self._live: dict[tuple[str, str], T] = {}

    def add(self, session_id: str, thing: T) -> T:
        """Add a session under its own id; raises BAD_ARGUMENT when the caller already has one of this id."""
        if not session_id:
            raise ToolError(codes.BAD_ARGUMENT, "A session needs an id.")
        if (_owner(), session_id) in self._live:
            raise ToolError(codes.BAD_ARGUMENT, f"There is a session {session_id[:80]!r} already.")
        self._live[_owner(), session_id] = thing
        _report_session(session_id)
        return thing

    def get(self, session_id: str = "") -> T:
        """The caller's session of this id; without an id, its only one."""
        ids = self.ids()
        if session_id:
            if session_id not in ids:
                running = f"Running: {', '.join(ids)}." if ids else "None is running."
                raise ToolError(
                    codes.NOT_RUNNING, f"There is no session {session_id[:80]!r}. {running}", available=[*ids]
                )
        elif len(ids) == 1:
            session_id = ids[0]
        elif ids:
            raise ToolError(
                codes.BAD_ARGUMENT, f"Several sessions run; name one of: {', '.join(ids)}.", available=[*ids]
            )
        else:
            raise ToolError(codes.NOT_RUNNING, "Nothing is running.", available=[])
        _report_session(session_id)
        return self._live[_owner(), session_id]

    def ids(self) -> tuple[str, ...]:
        """The ids of the caller's sessions, oldest first."""
        mine = _owner()
        return tuple(session_id for owner, session_id in self._live if owner == mine)

    def __len__(self) -> int:
        return len(self._live)

    async def remove(self, session_id: str) -> bool:
        """Dispose of one of the caller's sessions; False when there is none of this id."""
        return await self._end((_owner(), session_id))

    async def dispose_all(self) -> None:
        """Dispose of all sessions of all callers. A failure is logged and does not stop the others."""
        await asyncio.gather(*map(self._attempt, list(self._live)))

    async def _attempt(self, key: tuple[str, str]) -> None:
        try:
            async with asyncio.timeout(DISPOSE_SECONDS):
                await self._end(key)
        except Exception:
            log.exception("could not dispose of a session", extra={"driven": key[1]})

    async def _end(self, key: tuple[str, str]) -> bool:
        if key not in self._live:
            return False
        done = self._dispose(self._live.pop(key))
        if inspect.isawaitable(done):
            await done
        return True


def _owner() -> str:
    call = current_call()
    return call.owner if call is not None else ""


def _report_session(session_id: str) -> None:
    """Put the id into the envelope of the current call."""
    call = current_call()
    if call is not None:
        call.result_meta.session_id = session_id
