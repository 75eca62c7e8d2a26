"""One call of a tool, as its handler sees it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import msgspec

from holdfast.model import codes
from holdfast.model.context import SessionContext, current_context, use_context
from holdfast.model.json import Json, JsonObject
from holdfast.model.workspace import Workspace
from holdfast.toolkit.errors import ToolError
from holdfast.wire.frame import Id
from holdfast.wire.mcp.server import Notify

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LEVELS: dict[str, int] = {
    "debug": 10, "info": 20, "notice": 25, "warning": 30,
    "error": 40, "critical": 50, "alert": 60, "emergency": 70,
}  # fmt: skip
SILENT = 100
"""Higher than every level: the client gets no log messages."""

log = logging.getLogger(__name__)


async def _discard(method: str, params: Any) -> None:
    """Drop a notification."""


class ResultMeta(msgspec.Struct):
    """The members of the envelope's `_meta` that a running call can set."""

    session_id: str = ""
    """The id of the caller's session, or of the driven session that the call used."""


class Call(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One call of a tool: its caller, its workspace, and how to notify the client while it runs."""

    tool: str
    call_id: Id = 0
    session: SessionContext | None = None
    """The caller's session; None for anonymous callers."""
    announced_workspace: str = ""
    """The slug, name or path of the workspace that an anonymous client announced in `_meta`; empty for other callers."""
    workspace: Workspace | None = None
    """The workspace of this call, for tools with a `workspace` parameter."""
    client: str = ""
    """The name that the client gives itself."""
    mcp_session_id: str = ""
    """The `Mcp-Session-Id` of the request; empty on stdio and in the modern era."""
    meta: JsonObject = {}
    """The request's `_meta`, unchecked: the client can put anything there."""
    connection: str = ""
    """The id of an anonymous caller's connection or MCP session; empty if several callers may share it."""
    notify: Notify = _discard
    level: int = SILENT
    """The lowest level of log messages that the client wants."""
    result_meta: ResultMeta = msgspec.field(default_factory=ResultMeta)

    @property
    def owner(self) -> str:
        """The key for what a tool keeps for this caller: the id of its session, else of its connection or MCP session.

        Raises NO_CONTEXT if the caller has none of them, because such callers cannot be told apart.
        """
        owner = self.session.session_id if self.session is not None else self.connection
        if not owner:
            raise ToolError(
                codes.NO_CONTEXT,
                f"{self.tool} keeps data for its caller, but this server cannot tell its callers apart. "
                "Start it with --keys and call it from a Holdfast session, or use a client that sends initialize.",
            )
        return owner

    async def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Send the client a progress notification, if it asked for progress."""
        token = self.meta.get("progressToken")
        if not isinstance(token, str | int):
            return
        params: dict[str, Any] = {"progressToken": token, "progress": done}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        await self.notify("notifications/progress", params)

    async def log(self, level: Level, message: str, **fields: Json) -> None:
        """Log an event to standard error, and to the client if it asked for this level."""
        number = LEVELS[level]
        log.log(min(number, logging.CRITICAL), message, extra={"tool": self.tool, **_rename_reserved(fields)})
        if number >= self.level:
            data: Json = {"message": message, **fields} if fields else message
            await self.notify("notifications/message", {"level": level, "logger": self.tool, "data": data})


_current: ContextVar[Call | None] = ContextVar("holdfast_call", default=None)


def current_call() -> Call | None:
    """The call that this code runs for; None outside of calls."""
    return _current.get()


def current_session() -> SessionContext | None:
    """The session that this code runs for; None for anonymous callers."""
    return current_context()


@contextmanager
def bind_call(call: Call) -> Iterator[Call]:
    """Make this the current call, and its session the current session, while the block runs."""
    token = _current.set(call)
    try:
        if call.session is None:
            yield call
        else:
            with use_context(call.session):
                yield call
    finally:
        _current.reset(token)


def _rename_reserved(fields: dict[str, Json]) -> dict[str, Json]:
    """Append `_` to the name of each field that is also an attribute of `LogRecord`."""
    reserved = vars(logging.makeLogRecord({}))
    return {
        (f"{name}_" if name in reserved or name == "message" else name): value
        for name, value in fields.items()
    }
