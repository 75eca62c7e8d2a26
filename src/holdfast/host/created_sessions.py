"""How many sessions one session may create, and how fast."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from holdfast.host.delegation import TOO_DEEP_HINT, depth_of
from holdfast.host.live_sessions import LiveSessions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.session.session import Session

MAX_CREATED_SESSIONS = 10
"""How many sessions that one session created may be open at the same time."""
CREATION_SECONDS = 1.0
"""The shortest time between two creations by one session."""


@dataclass(slots=True)
class _Children:
    """The children of one session."""

    count: int = 0
    """How many are open or being opened."""
    last_creation: float = -inf


class CreatedSessions:
    """Counts the open sessions that each session of a host has created."""

    def __init__(self, live: LiveSessions, max_depth: int) -> None:
        self._live = live
        self._max_depth = max_depth
        self._children: dict[SessionId, _Children] = {}

    def is_allowed(self, session: Session) -> bool:
        """Whether the session may create another one now."""
        children = self._children.get(session.context.session_id)
        return depth_of(session) < self._max_depth and (
            children is None or children.count < MAX_CREATED_SESSIONS
        )

    @contextmanager
    def reserve(self, parent: Session) -> Iterator[Callable[[Session], None]]:
        """Count one more child of the session, or raise if it has too many.

        Call the yielded function with the child to count the child until it is closed. Otherwise it counts only during the block.
        """
        if depth_of(parent) >= self._max_depth:
            raise HoldfastError(
                codes.TOO_MANY_CHILDREN,
                f"The setting agents.max_depth allows {self._max_depth} levels of agents below the user's own, and this session is"
                " on the last one.",
                hint=TOO_DEEP_HINT,
            )
        parent_id = parent.context.session_id
        children = self._children.get(parent_id)
        if children is None:
            children = self._children[parent_id] = _Children()
            parent.on_closed(lambda: self._forget_if_closed(parent_id))
        now = time.monotonic()
        if children.count >= MAX_CREATED_SESSIONS:
            raise HoldfastError(
                codes.TOO_MANY_CHILDREN,
                f"This session has created {MAX_CREATED_SESSIONS} sessions that are still open, and may not create more.",
                hint="Wait until one of them is closed.",
            )
        if now - children.last_creation < CREATION_SECONDS:
            raise HoldfastError(
                codes.TOO_MANY_CHILDREN,
                f"This session has just created another one, and must wait {CREATION_SECONDS:g} s before it creates the next.",
                hint="Wait, then create the session.",
            )
        children.count += 1
        children.last_creation = now
        is_kept = False

        def keep_until_closed(child: Session) -> None:
            nonlocal is_kept
            is_kept = True
            child.on_closed(lambda: self._release_child(parent_id))

        try:
            yield keep_until_closed
        finally:
            if not is_kept:
                self._release_child(parent_id)

    def _release_child(self, parent: SessionId) -> None:
        children = self._children.get(parent)
        if children is not None:
            children.count -= 1
            self._forget_if_closed(parent)

    def _forget_if_closed(self, parent: SessionId) -> None:
        """Forget the children of a session when the session and all of its children are closed."""
        children = self._children.get(parent)
        if children is not None and not children.count and self._live.find(parent) is None:
            del self._children[parent]
