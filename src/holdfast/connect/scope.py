"""Whose links are these? The session or run that a piece of code belongs to."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from holdfast.model import codes
from holdfast.model.context import SessionContext, within
from holdfast.model.errors import HoldfastError


class Scope:
    """A claim on links. It is closed once; whatever still runs in it then gets an error, never a fresh server."""

    __slots__ = ("_context", "closed", "home")

    def __init__(self, context: SessionContext, home: "Scope | None" = None) -> None:
        self._context = context
        self.closed = False
        self.home: Scope = home or self
        """The session's scope; links of lifetime `session` are kept there, those of lifetime `run` here."""

    @property
    def context(self) -> SessionContext:
        """Whose scope it is, as of now: a session's trust may be lowered while it runs."""
        return self.home._context

    def become(self, context: SessionContext) -> None:
        """The session has changed: every scope in it changes with it."""
        self.home._context = context

    def check_open(self) -> None:
        """Raise when the scope is over."""
        if self.closed or self.home.closed:
            raise HoldfastError(
                codes.SCOPE_CLOSED,
                f"The session {self.context.session_id} is over: this task has outlived it.",
            )


_current: ContextVar[Scope | None] = ContextVar("holdfast_scope", default=None)


def current_scope() -> Scope | None:
    """The scope this code runs in, if it runs in one. Tasks and `to_thread` inherit it; raw executors do not."""
    return _current.get()


def require_scope() -> Scope:
    """The open scope this code runs in; calling a tool takes one."""
    scope = _current.get()
    if scope is None:
        raise HoldfastError(
            codes.NO_CONTEXT, "A tool is called from inside a session or a run: `async with host.session(…)`."
        )
    scope.check_open()
    return scope


@contextmanager
def entered(scope: Scope) -> Iterator[Scope]:
    """Run a block in this scope and as its session; what was current before is current again after it."""
    token = _current.set(scope)
    try:
        with within(scope.context):
            yield scope
    finally:
        _current.reset(token)
