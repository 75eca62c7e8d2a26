"""Scopes: a session or a run, as the owner of links. The calling code can find the scope that it runs in."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from holdfast.connect.relay import Relay
from holdfast.model import codes
from holdfast.model.block_var import BlockVar
from holdfast.model.context import SessionContext, use_context
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.wire.loop_throttle import BURST_SECONDS, LoopThrottle
from holdfast.wire.mcp.server import Service

OpenService: TypeAlias = Callable[[SessionContext], AbstractAsyncContextManager[Service]]
"""Opens an application's toolbox as a server for one session."""


class Scope:
    """A session or one of its runs, as the owner of links."""

    __slots__ = (
        "_context",
        "capability_advice",
        "door",
        "is_closed",
        "is_stored",
        "keeps_logs",
        "relay",
        "services",
        "session_scope",
        "throttle",
        "used_before",
    )

    def __init__(
        self,
        context: SessionContext,
        session_scope: "Scope | None" = None,
        *,
        used_before: frozenset[str] = frozenset(),
        services: "Mapping[str, OpenService] | None" = None,
        throttle: LoopThrottle | None = None,
    ) -> None:
        """`throttle` is that of the session's quota owner. By default, the session is an owner of its own."""
        self._context = context
        self.is_closed = False
        self.door: Door | None = None
        """How the session's servers reach the user. Only the scope of a session has one."""
        self.relay: Relay | None = None
        """How the session's servers reach the gateway's client. Only the scope of a session may have one."""
        self.session_scope: Scope = session_scope or self
        """The session's scope, or this scope itself. It owns the links of lifetime `session`; this scope owns those of lifetime `run`."""
        self.used_before = used_before
        """The servers that a resumed session used before. Their state is lost."""
        self.services: Mapping[str, OpenService] = services or {}
        """The application's toolboxes, by service name. Only set in the scope of a session."""
        self.capability_advice = ""
        """What the application can do if a server needs a capability of its client. Only set in the scope of a session."""
        self.is_stored = False
        """Whether the session can be opened again. Only set in the scope of a session."""
        self.keeps_logs = True
        """Whether the standard error of servers is written to log files. Only set in the scope of a session."""
        self.throttle: LoopThrottle = (
            session_scope.throttle
            if session_scope is not None
            else throttle or LoopThrottle(context.payer, burst_seconds=BURST_SECONDS)
        )
        """Limits how much of the event loop's time the messages of the servers take. Sessions with one quota owner share it."""

    @property
    def context(self) -> SessionContext:
        """The session's current context."""
        return self.session_scope._context

    @property
    def quota_owner(self) -> str:
        """Who pays for the session; see `SessionContext.quota_owner`. A session that has no such owner pays for itself."""
        return self.throttle.owner

    def update_context(self, context: SessionContext) -> None:
        """Replace the context of the session, and so of every scope in it."""
        self.session_scope._context = context

    def find_caller_scope(self) -> "Scope":
        """The scope of the run that the calling code is part of, if it is a run of this session; else this scope.

        Call this only on the scope of a session.
        """
        current = _current.get()
        return current if current is not None and current.session_scope is self else self

    def check_open(self) -> None:
        """Raise if the scope or its session is closed."""
        if self.is_closed or self.session_scope.is_closed:
            raise HoldfastError(
                codes.SCOPE_CLOSED,
                f"The session {self.context.session_id}, or the run of it that this task belongs to, is closed.",
            )


_current: BlockVar[Scope] = BlockVar("holdfast_scope")
look_up_quota_owner: ContextVar[str] = ContextVar("holdfast_look_up_quota_owner", default="")
"""Whose quota the current task's DNS look-ups use: a `Scope.quota_owner`, or the name of a server that sessions share."""


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
    with _current.use(scope), use_context(scope):
        yield scope
