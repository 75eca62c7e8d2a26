"""One call of a tool, a resource or a prompt, as its handler sees it."""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import msgspec

from holdfast.model import codes
from holdfast.model.context import SessionContext, current_context, use_context
from holdfast.model.errors import advise_about_names
from holdfast.model.json import Json, JsonObject
from holdfast.model.workspace import Workspace
from holdfast.toolkit.client_requests import NO_CLIENT, ClientRequests
from holdfast.toolkit.errors import ToolError
from holdfast.wire.mcp.server import Notify
from holdfast.wire.messages import Id, Raw

if TYPE_CHECKING:
    from holdfast.toolkit.message import Messages
    from holdfast.toolkit.sampling import Root, Sample, SampleOptions

T = TypeVar("T")

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LEVELS: dict[str, int] = {
    "debug": 10, "info": 20, "notice": 25, "warning": 30,
    "error": 40, "critical": 50, "alert": 60, "emergency": 70,
}  # fmt: skip
"""MCP's log levels, with the numbers of the module `logging` where it has such a level."""
SILENT = 100
"""A level higher than all others: the client gets no log messages."""

_MEMBERS_OF_FASTMCP = {
    "elicit": "await call.ask(question, type)",
    "elicit_url": "await call.ask(question, url=…)",
    "report_progress": "await call.progress(done, total)",
    **{level: f'await call.log("{level}", "…")' for level in ("debug", "info", "warning", "error")},
    "list_roots": "await call.roots()",
    "lifespan_context": "call.state",
    "request_context": "call.state for what the lifespan yields, call.meta for the `_meta` of the request",
    "request_id": "call.call_id",
    "session_id": "call.mcp_session_id, or call.session for the Holdfast session",
    "client_id": "call.client",
    "fastmcp": "the Toolbox itself",
    **dict.fromkeys(
        ("get_state", "set_state"), "Annotated[…, Given(function)], which keeps a value per call or session"
    ),
}
"""What to write instead of members that authors know from the `Context` of FastMCP and the MCP SDK."""

log = logging.getLogger(__name__)


async def _discard(method: str, params: Any) -> None:
    """Drop a notification."""


class ResultMeta(msgspec.Struct):
    """The members that a running call can set in the `_meta` of its envelope."""

    session_id: str = ""
    """The id of the caller's session, or of the driven session that the call used."""


@advise_about_names(_MEMBERS_OF_FASTMCP)
class Call(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One call of a tool, or one request for a resource or a prompt: its caller, its workspace, and how to notify the client while it runs."""

    tool: str
    """The name of the tool or the prompt, or the URI template of the resource."""
    uri: str = ""
    """The URI of the resource that is read; empty for tools and prompts."""
    call_id: Id = 0
    """The id of the JSON-RPC request."""
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
    headers: Mapping[str, str] = {}
    """The headers of the HTTP request that `box.http_app(headers=…)` names, by lower-case name."""
    connection: str = ""
    """The id of an anonymous caller's connection or MCP session; empty if several callers may share it."""
    notify: Notify = _discard
    """Sends a notification to the client."""
    level: int = SILENT
    """The lowest level of log messages that the client wants."""
    result_meta: ResultMeta = msgspec.field(default_factory=ResultMeta)
    """What the call adds to the `_meta` of its envelope."""
    client_requests: ClientRequests = NO_CLIENT
    """Sends the requests of `ask`, `sample` and `roots`."""
    state: Any = None
    """What the lifespan of the box yielded; None if it has no lifespan."""

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

    @overload
    async def ask(self, question: str, kind: type[T], *, key: str = "") -> T: ...

    @overload
    async def ask(self, question: str, kind: object, *, key: str = "") -> Any: ...

    @overload
    async def ask(self, question: str, *, url: str, key: str = "") -> None: ...

    async def ask(self, question: str, kind: Any = None, *, url: str = "", key: str = "") -> Any:
        """Ask the user, and return the answer as a value of the type `kind`.

        `kind` is `str`, `int`, `float`, `bool`, a date, a `Literal`, a list of `Literal`, or a class with such fields. With `url`, ask the
        user to open a page instead, for passwords and logins, and return when the user has agreed.
        Raises DECLINED if the user declines, and MISSING_CAPABILITY if the client cannot ask.
        The `key` names the question in the modern era; by default questions are numbered.
        """
        from holdfast.toolkit.question import make_form, read_answer

        if url:
            params: JsonObject = {
                "mode": "url",
                "message": question,
                "url": url,
                "elicitationId": token_hex(16),
            }
            read_answer(await self._request("elicitation/create", params, "elicitation.url", key))
            return None
        form = make_form(kind)
        params = {"message": question, "requestedSchema": form.schema}
        raw = await self._request("elicitation/create", params, "elicitation.form", key)
        return form.parse(read_answer(raw))

    async def sample(
        self, messages: "Messages", *, key: str = "", **options: "Unpack[SampleOptions]"
    ) -> "Sample":
        """Let the client's model answer. Raises MISSING_CAPABILITY if the client does not offer its model."""
        from holdfast.toolkit.sampling import read_sample, sample_params

        params = sample_params(messages, options)
        return read_sample(await self._request("sampling/createMessage", params, "sampling", key))

    async def roots(self, *, key: str = "") -> "list[Root]":
        """The folders that the client lets this server use. Raises MISSING_CAPABILITY if the client has no roots."""
        from holdfast.toolkit.sampling import read_roots

        return read_roots(await self._request("roots/list", {}, "roots", key))

    async def _request(self, method: str, params: JsonObject, needs: str, key: str) -> Raw:
        return await self.client_requests.request(method, params, needs=needs, key=key)

    async def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Send the client a progress notification, if it asked for progress."""
        token = self.client_requests.progress_token(self.meta)
        if not isinstance(token, str | int):
            return
        params: dict[str, Any] = {"progressToken": token, "progress": done}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        await self.notify("notifications/progress", params)

    async def log(self, level: Level, message: str, **fields: Json) -> None:
        """Log an event in this process, and send it to the client if the client wants this level."""
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
    """The session that this code runs for; None for anonymous callers, and outside of sessions."""
    return current_context()


class bind_call:  # noqa: N801  (a class, because a generator would make every call slower)
    """Make this the current call, and its session the current session, while the block runs."""

    __slots__ = ("_call", "_context", "_token")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._context = None if call.session is None else use_context(call.session)

    def __enter__(self) -> Call:
        self._token = _current.set(self._call)
        if self._context is not None:
            self._context.__enter__()
        return self._call

    def __exit__(self, *_: object) -> None:
        if self._context is not None:
            self._context.__exit__(None, None, None)
        _current.reset(self._token)


def _rename_reserved(fields: dict[str, Json]) -> dict[str, Json]:
    """Append `_` to the name of each field that is also an attribute of `LogRecord`."""
    reserved = vars(logging.makeLogRecord({}))
    return {
        (f"{name}_" if name in reserved or name == "message" else name): value
        for name, value in fields.items()
    }
