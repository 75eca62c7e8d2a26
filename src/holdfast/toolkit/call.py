"""One call of a tool, as its handler sees it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import msgspec

from holdfast.model.context import SessionContext, current_context, within
from holdfast.model.json import Json, JsonObject
from holdfast.model.workspace import Workspace
from holdfast.wire.frame import Id
from holdfast.wire.mcp.server import Notify

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LEVELS: dict[str, int] = {
    "debug": 10, "info": 20, "notice": 25, "warning": 30,
    "error": 40, "critical": 50, "alert": 60, "emergency": 70,
}  # fmt: skip
SILENT = 100

log = logging.getLogger(__name__)


async def _unheard(method: str, params: Any) -> None:
    """Nobody listens."""


class Stamp(msgspec.Struct):
    """The session that a call turned out to be about: the caller's, or the driven one that it used."""

    session_id: str = ""


class Call(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Who calls which tool, from where, and how to tell them something meanwhile."""

    tool: str
    call_id: Id = 0
    session: SessionContext | None = None
    """What the host vouches for; None when nobody does."""
    announced: str = ""
    """The workspace that a client without a context says it works in."""
    workspace: Workspace | None = None
    """The workspace of this call, for tools that take one."""
    client: str = ""
    connection: str = ""
    """The `Mcp-Session-Id` of a client over HTTP that shook hands."""
    meta: JsonObject = {}
    """The request's `_meta`, as it came: anybody can write anything there."""
    notify: Notify = _unheard
    level: int = SILENT
    """From which level on the client wants to be told."""
    stamp: Stamp = msgspec.field(default_factory=Stamp)

    @property
    def owner(self) -> str:
        """Whose the things are that this call drives: the session's, or else the connection's."""
        return self.session.session_id if self.session is not None else self.connection

    async def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the client how far the work is, if it asked to be told."""
        token = self.meta.get("progressToken")
        if not isinstance(token, str | int):
            return
        said: dict[str, Any] = {"progressToken": token, "progress": done}
        if total is not None:
            said["total"] = total
        if message:
            said["message"] = message
        await self.notify("notifications/progress", said)

    async def log(self, level: Level, message: str, **fields: Json) -> None:
        """Log an event: to standard error always, to the client if it wants to know of this level."""
        number = LEVELS[level]
        log.log(min(number, logging.CRITICAL), message, extra={"tool": self.tool, **_safe(fields)})
        if number >= self.level:
            data: Json = {"message": message, **fields} if fields else message
            await self.notify("notifications/message", {"level": level, "logger": self.tool, "data": data})


_current: ContextVar[Call | None] = ContextVar("holdfast_call", default=None)


def current_call() -> Call | None:
    """The call that this code runs for, if it runs for one."""
    return _current.get()


def current_session() -> SessionContext | None:
    """The session that this code runs for, as far as somebody vouches for it."""
    return current_context()


@contextmanager
def running(call: Call) -> Iterator[Call]:
    """Run a block for this call, and for its session."""
    token = _current.set(call)
    try:
        if call.session is None:
            yield call
        else:
            with within(call.session):
                yield call
    finally:
        _current.reset(token)


def _safe(fields: dict[str, Json]) -> dict[str, Json]:
    """Fields under names that the log's own records do not have."""
    own = vars(logging.makeLogRecord({}))
    return {
        (f"{name}_" if name in own or name == "message" else name): value for name, value in fields.items()
    }
