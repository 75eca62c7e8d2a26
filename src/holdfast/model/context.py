"""The facts about a session that the host vouches for, and the one place they are current."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """Who is calling: no model, client or config file can change a word of it."""

    session_id: SessionId
    trust_level: Trust
    workspace_id: str = ""
    cwd: str = ""
    roots: tuple[str, ...] = ()
    user_id: str | None = None
    parent_session_id: SessionId | None = None


_current: ContextVar[SessionContext | None] = ContextVar("holdfast_session_context", default=None)


def current_context() -> SessionContext | None:
    """The context of the session this code runs for, if it runs for one."""
    return _current.get()


@contextmanager
def within(context: SessionContext) -> Iterator[SessionContext]:
    """Run a block for this session; what was current before is current again after it."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)
