"""Scopes: which session or run the current code belongs to."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from holdfast.model import codes
from holdfast.model.context import SessionContext, use_context
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.wire.loop_throttle import BURST_SECONDS, LoopThrottle


class Scope:
    """A session or one of its runs, as the owner of links. Code in a closed scope gets an error, never a new link."""

    __slots__ = ("_context", "door", "is_closed", "session_scope", "throttle", "used_before")

    def __init__(
        self,
        context: SessionContext,
        session_scope: "Scope | None" = None,
        *,
        used_before: frozenset[str] = frozenset(),
    ) -> None:
        self._context = context
        self.is_closed = False
        self.door: Door | None = None
        """The session's servers reach its user through it. Only the scope of a session has one."""
        self.session_scope: Scope = session_scope or self
        """The scope of the session. It owns the links of lifetime `session`; this scope owns those of lifetime `run`."""

        self.used_before = used_before
        """The servers that a resumed session had used before it was resumed. Their state is lost."""
        self.throttle: LoopThrottle = (
            session_scope.throttle
            if session_scope is not None
            else LoopThrottle(context.session_id, burst_seconds=BURST_SECONDS)
        )
        """Limits how much of the event loop's time the messages from the session's servers take."""

    @property
    def context(self) -> SessionContext:
        """The session's current context. Its trust may be lowered while the session runs."""
        return self.session_scope._context

    def update_context(self, context: SessionContext) -> None:
        """Replace the context of the session, and so of every scope in it."""
        self.session_scope._context = context

    def of_caller(self) -> "Scope":
        """The run of this session that the calling code is part of, or else this scope. Only for the scope of a session."""
        current = _current.get()
        return current if current is not None and current.session_scope is self else self

    def check_open(self) -> None:
        """Raise if the scope or its session is closed."""
        if self.is_closed or self.session_scope.is_closed:
            raise HoldfastError(
                codes.SCOPE_CLOSED,
                f"The session {self.context.session_id}, or the run of it that this task belongs to, is closed.",
            )


_current: ContextVar[Scope | None] = ContextVar("holdfast_scope", default=None)
look_up_quota_key: ContextVar[str] = ContextVar("holdfast_look_up_quota_key", default="")
"""Whose share of name look-ups the current task uses: that of a session, or of a server that sessions share.

A `Pool` sets it for each request.
"""


def current_scope() -> Scope | None:
    """The current scope, or None. Tasks and `WorkerThreads` inherit it; plain executors do not."""
    return _current.get()


def require_scope() -> Scope:
    """The current scope. Raise if there is none or if it is closed."""
    scope = _current.get()
    if scope is None:
        raise HoldfastError(
            codes.NO_CONTEXT,
            "Tools can only be called inside a session or a run: `async with host.session(…)`.",
        )
    scope.check_open()
    return scope


@contextmanager
def enter_scope(scope: Scope) -> Iterator[Scope]:
    """Make this scope and its session's context current for the length of the block."""
    token = _current.set(scope)
    try:
        with use_context(scope):
            yield scope
    finally:
        _current.reset(token)
