"""A session's tool calls: each is recorded, checked for permission, made, and recorded again with its result."""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack

from msgspec import Raw, UnsetType, structs

from holdfast.connect.call import ToolResult, call, failed_result
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.connection import ForwardOptions
from holdfast.connect.scope import Scope
from holdfast.connect.server_messages import OnProgress
from holdfast.model import codes
from holdfast.model.call import Forwarding, ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome
from holdfast.model.ids import new_call_id
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import ON_LOOP_LIMIT, SMALL_DOCUMENT_BYTES
from holdfast.model.permission import Access
from holdfast.model.server import InProcess
from holdfast.session.call_record import CallRecord
from holdfast.session.permission import Permission, PermissionPolicy, tool_kind
from holdfast.session.question_title import tool_label
from holdfast.session.server_deps import ServerDeps
from holdfast.session.servers import Servers
from holdfast.session.session_spans import SessionSpans
from holdfast.tracing import Span
from holdfast.wire.call_arguments import encode_arguments
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.message_memory import LONG_LINE_BYTES
from holdfast.wire.parse_threads import run_in_parse_thread
from holdfast.wire.strict_json import (
    DECODE_ERRORS,
    decode_json,
    describe_decode_error,
    exceeds_limit,
    has_more_values,
)

CANCELLED = structs.replace(
    failed_result(HoldfastError(codes.CANCELLED, "The call was cancelled.")), outcome=Outcome.CANCELLED
)

CLOSED = structs.replace(
    failed_result(HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")), outcome=Outcome.CANCELLED
)

_OTHER_REQUESTS = frozenset(
    {
        "resources/read",
        "resources/list",
        "prompts/get",
        "prompts/list",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
        "logging/setLevel",
        "subscriptions/listen",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
    }
)
"""The requests other than `tools/call` that a session may send."""
_ONLY_READS = Raw(b'{"readOnlyHint": true}')
# Read once, because reading an enum member is slow in Python 3.11.
_ALLOWED = Access.ALLOWED


class Calls:
    """Makes the calls of one session, and cancels the running ones when the session is closed."""

    def __init__(
        self,
        servers: Servers,
        record: CallRecord,
        permission: PermissionPolicy,
        deps: ServerDeps,
        spans: SessionSpans | None = None,
    ) -> None:
        self._spans = spans
        self._servers = servers
        self._record = record
        self._permission = permission
        self._deps = deps
        self._running: set[_RunningCall] = set()
        self._is_closing = False
        self._all_ended: asyncio.Future[None] | None = None
        self._progress_callbacks: list[Callable[[str, Mapping[str, Any]], None]] = []
        self._described: dict[str, tuple[CatalogTool, str, str]] = {}
        """The tool, its label and its kind, for each name that was called."""

    def on_progress(self, callback: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Pass the progress of calls without an `on_progress` of their own to a function: the call's id, and the notification's params."""
        self._progress_callbacks.append(callback)

    def _report_progress(self, call_id: str, params: Mapping[str, Any]) -> None:
        for callback in self._progress_callbacks:
            callback(call_id, params)

    async def perform(
        self, tool_call: ToolCall, *, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> ToolResult:
        """Make a call, if it is permitted, and record it. Raise if the session is closed, or if the call cannot be recorded."""
        if self._is_closing:
            raise _closed_error()
        if on_progress is None and self._progress_callbacks:
            on_progress = partial(self._report_progress, tool_call.call_id)
        running = _RunningCall()
        self._running.add(running)
        try:
            result = await self._perform(tool_call, timeout, on_progress, running)
            if result.code == codes.MISSING_CAPABILITY.name:
                advice = self._servers.scope_of_caller().session_scope.capability_advice
                return structs.replace(result, message=f"{result.message} {advice}".rstrip())
            return result
        except asyncio.CancelledError:
            if running.was_cancelled_by_closing:
                raise _closed_error() from None
            raise
        finally:
            if running.is_cancelled:
                running.undo_cancel()
            self._running.discard(running)
            if self._all_ended is not None and not self._running and not self._all_ended.done():
                self._all_ended.set_result(None)

    async def reject(self, tool_call: ToolCall, error: HoldfastError) -> ToolResult:
        """Record a call that an agent asked for but that cannot be made."""
        if self._is_closing:
            raise _closed_error()
        result = structs.replace(failed_result(error), outcome=Outcome.REFUSED)
        title = ".".join(filter(None, (tool_call.server, tool_call.tool)))
        await self._record.add_call(tool_call, title=title)
        await self._record.add_end(tool_call, result, 0.0)
        return result

    async def request(self, server: str, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Send a request such as `resources/read`, and return its result. It is permitted and recorded like a call.

        To permission rules, it is a call of a read-only tool with the method's name.
        """
        tool_call = ToolCall(
            call_id=new_call_id(),
            server=server,
            tool=f"{server}.{method}",
            arguments=encode_arguments(params),
            method=method,
        )
        result = await self.perform(tool_call, timeout=self._deps.options.list_seconds)
        if not result.ok:
            error = HoldfastError(codes.find(result.code) or codes.PEER_ERROR, result.message)
            if result.error is not None:
                error.details["rpc_code"] = result.error.rpc_code
            raise error
        answer = result.result.structured_content
        if isinstance(answer, UnsetType):
            return {}
        throttle = self._servers.scope_of_caller().throttle
        decoded: Json = (
            await run_in_parse_thread(decode_json, answer, throttle=throttle)
            if len(answer) > LONG_LINE_BYTES
            else decode_json(answer)
        )
        return decoded if isinstance(decoded, dict) else {}

    async def list_all(self, server: str, method: str, key: str) -> list[JsonObject]:
        """List all items of one kind that a server has, if that is permitted. `key` is the member of a page that has the items."""
        self._check_request(server, method)
        return await self._servers.list_all(server, method, key)

    async def forward(
        self, server: str, method: str, params: Mapping[str, Any], **options: Unpack[ForwardOptions]
    ) -> Raw:
        """Send a request of the session's client to a server, if it is permitted. Nothing is recorded."""
        self._check_request(server, method)
        return await self._servers.forward(server, method, params, **options)

    def _check_request(self, server: str, method: str) -> None:
        decision = self._permission.decide(self._find_request(server, method))
        if decision.access is Access.REFUSED:
            raise HoldfastError(codes.NOT_PERMITTED, decision.reason)

    def _find_request(self, server: str, method: str) -> CatalogTool:
        """A request other than `tools/call`, as a tool that permission rules apply to. Raise if the session may not send it."""
        if method not in _OTHER_REQUESTS:
            raise HoldfastError(codes.BAD_ARGUMENT, f"A session cannot send {method[:80]!r} to a server.")
        spec = self._servers.spec(server)
        if not spec.allows_tool(method):
            raise HoldfastError(
                codes.NOT_PERMITTED,
                f"Only some tools of {server!r} may be used in this session, and {method!r} is not among them.",
                hint=f"Add {method!r} to the tools that the session, the workspace or the server's entry allows.",
            )
        definition = Tool(name=method, annotations=_ONLY_READS)
        return CatalogTool(server=spec, definition=definition, name=f"{server}.{method}", model_name="")

    async def cancel_all(self) -> None:
        """Refuse further calls, cancel the running ones, and wait until they have ended."""
        self._is_closing = True
        if self._running:
            self._all_ended = asyncio.get_running_loop().create_future()
            for running in self._running:
                running.cancel()
            await self._all_ended

    async def _perform(
        self,
        tool_call: ToolCall,
        timeout: float | None,
        progress: OnProgress | None,
        running: "_RunningCall",
    ) -> ToolResult:
        """Find the tool, record the call, ask for permission if necessary, make the call, and record its end."""
        scope = self._servers.scope_of_caller()
        scope.session_scope.check_open()
        began = time.monotonic()
        tool_or_failure = await self._find(tool_call, scope)
        if isinstance(tool_or_failure, ToolResult):
            return tool_or_failure
        tool, decoded = tool_or_failure
        # From here on, `tool_call.tool` is the name that the server gave the tool. A caller cannot set `is_preview` or `is_confirmed`.
        tool_call = structs.replace(
            tool_call,
            server=tool.server.name,
            tool=tool.definition.name,
            is_preview=False,
            is_confirmed=False,
        )
        result = CANCELLED  # recorded if the caller is cancelled; otherwise replaced below
        was_made = False
        span = None if self._spans is None else self._spans.start_call(tool_call, tool)
        try:
            label, kind = self._describe(tool)
            await self._record.add_call(tool_call, decoded=decoded, title=label, kind=kind)
            # `answer` is the result, as soon as it is known. A call that would fail anyway, or is not permitted, is not made.
            answer = await self._find_early_failure(scope, tool_call, tool, decoded)
            if answer is None and (
                tool_call.forwarding is None or not self._is_still_permitted(tool_call.forwarding, tool)
            ):
                permission = self._permission.decide_without_asking(
                    tool_call, tool
                ) or await self._ask_permission(scope, tool, tool_call)
                answer = permission.refusal
                if permission.is_confirmed:
                    tool_call = structs.replace(tool_call, is_confirmed=True)
            if answer is None and not tool_call.method and not self._servers.is_current(tool):
                answer = _changed_result(tool)
            if answer is None:
                await self._record.add_start(tool_call)  # otherwise a crash would leave no trace of the call
                sent = tool_call if span is None else _add_trace(tool_call, span)
                seconds = self._timeout_for(tool) if timeout is None else timeout
                calling = call(self._deps.links, scope, tool, sent, timeout=seconds, on_progress=progress)
                was_made = True
                answer = await (calling if span is None else span.run(calling))
                answer = _replace_if_closed(answer, scope, tool)
                await self._deps.mask_secret_files(answer.size, is_only_call=not self._deps.links.uses.count)
            result = answer
            if result.state_lost:  # the server was restarted, and may be another version now
                self._servers.refresh_tools(tool.server.name)
        except HoldfastError as error:
            result = structs.replace(failed_result(error), outcome=Outcome.REFUSED)  # the call was not made
            raise
        except asyncio.CancelledError:
            if not running.was_cancelled_by_closing:
                raise
            result = _closed_result(scope, tool) if was_made else CLOSED
        finally:
            # The end of a call is stored even if the caller is cancelled.
            if self._spans is not None:
                self._spans.end_call(tool_call, result)
            seconds = time.monotonic() - began
            await self._add_end(tool, tool_call, result, seconds, running, was_made=was_made)
        return result

    async def _find(self, tool_call: ToolCall, scope: Scope) -> tuple[CatalogTool, Json] | ToolResult:
        """The tool and the decoded arguments. If there is no such tool, or the arguments are invalid: the failed result, which is audited."""
        try:
            tool = (
                self._find_request(tool_call.server, tool_call.method)
                if tool_call.method
                else self._servers.find_started(tool_call.tool, scope)
                or await self._servers.find(tool_call.tool, scope)
            )
            return tool, self._decode_arguments(tool_call)
        except HoldfastError as error:
            if error.code is codes.SCOPE_CLOSED:
                raise _closed_error() from None
            result = failed_result(error)
            await self._record.audit_call_without_events(tool_call, result)
            return result

    async def _add_end(
        self,
        tool: CatalogTool,
        tool_call: ToolCall,
        result: ToolResult,
        seconds: float,
        running: "_RunningCall",
        *,
        was_made: bool,
    ) -> None:
        """Store the end of a call. If that fails after the call was made, raise RESULT_NOT_STORED."""
        try:
            await self._record.add_end(tool_call, result, seconds)
        except asyncio.CancelledError:
            # The end is stored. If the closing of the session cancelled the task, the caller still gets the result.
            if not running.was_cancelled_by_closing:
                raise
        except HoldfastError as error:
            if not was_made:
                raise
            raise _not_stored_error(tool, result, error) from error

    async def _ask_permission(self, scope: Scope, tool: CatalogTool, tool_call: ToolCall) -> Permission:
        """Ask the user about the call.

        If the server was restarted while the question was open, list its tools again: the user allowed the tool that was shown.
        """
        link_before = self._deps.links.find_usable(scope, tool.server)
        basis = self._permission.basis(tool)
        permission = await self._permission.decide_or_ask(
            tool_call, tool, partial(self._preview, scope, tool, tool_call)
        )
        if permission.was_asked and tool_call.forwarding is not None:
            tool_call.forwarding.grant.basis = basis
        can_restart = not isinstance(tool.server.transport, InProcess)
        if permission.refusal is None and permission.was_asked and can_restart:
            link_after = self._deps.links.find_usable(scope, tool.server)
            if link_after is None or link_after is not link_before:
                await self._servers.list_again(scope, tool.server.name)
        return permission

    def _is_still_permitted(self, forwarding: Forwarding, tool: CatalogTool) -> bool:
        """Whether the user permitted a forwarded call before it was interrupted to ask for input, and nothing has changed since then."""
        basis = forwarding.grant.basis
        if basis is None or basis != self._permission.basis(tool):
            return False
        return self._permission.decide(tool).access is not Access.REFUSED

    async def _preview(self, scope: Scope, tool: CatalogTool, tool_call: ToolCall) -> ToolResult:
        seconds = self._timeout_for(tool)
        return await call(
            self._deps.links, scope, tool, structs.replace(tool_call, is_preview=True), timeout=seconds
        )

    def _timeout_for(self, tool: CatalogTool) -> float:
        return tool.server.call_seconds or self._deps.options.call_seconds

    def _describe(self, tool: CatalogTool) -> tuple[str, str]:
        """The label and the kind of a tool, for its events; made once for each tool."""
        known = self._described.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._described[tool.name] = (tool, tool_label(tool), tool_kind(tool))
        return known[1], known[2]

    async def _find_early_failure(
        self, scope: Scope, tool_call: ToolCall, tool: CatalogTool, decoded: Json
    ) -> ToolResult | None:
        """The failed result, if the call would fail anyway, so that the user is not asked about it. Else None."""
        error = self._deps.links.restart_error(scope, tool.server)
        if (
            error is None
            and tool_call.forwarding is not None
            and self._permission.decide(tool).access is _ALLOWED
        ):
            return None  # the client gets the server's own error unchanged
        if error is None:
            error = await self._deps.arguments.find_error(
                tool, tool_call.arguments, quota_owner=scope.quota_owner, decoded=decoded
            )
        return None if error is None else structs.replace(failed_result(error), outcome=Outcome.REFUSED)

    def _decode_arguments(self, tool_call: ToolCall) -> Json:
        """The arguments, decoded once for all later steps. None if they are too large to decode on the event loop."""
        if len(tool_call.arguments) > SMALL_DOCUMENT_BYTES:
            values = self._deps.options.limits.values
            if has_more_values(tool_call.arguments, values):
                raise HoldfastError(
                    codes.TOO_LARGE, f"The arguments have more than {values} JSON values. Nothing was called."
                )
            if exceeds_limit(tool_call.arguments, ON_LOOP_LIMIT):
                return None
        try:
            decoded = decode_json(tool_call.arguments)
        except DECODE_ERRORS as error:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"The arguments are not valid JSON: {describe_decode_error(error)}. Nothing was called.",
            ) from None
        return decoded


class _RunningCall:
    """A call that is running in the current task."""

    __slots__ = ("_cancels_before", "_task", "is_cancelled")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancels_before = task.cancelling()
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self._task.cancel()

    @property
    def was_cancelled_by_closing(self) -> bool:
        """Whether `cancel` was called, and nothing else has cancelled the task during the call."""
        return self.is_cancelled and self._task.cancelling() == self._cancels_before + 1

    def undo_cancel(self) -> None:
        """Undo the cancellation by `cancel`, so that the task can continue, as `asyncio.timeout` does."""
        self._task.uncancel()


def _changed_result(tool: CatalogTool) -> ToolResult:
    error = HoldfastError(
        codes.NOT_PERMITTED,
        f"{tool.name} was changed or withdrawn, or the session's trust was lowered, before the call was permitted. Nothing "
        "was called. If the tool is still offered, call it again.",
    )
    return structs.replace(failed_result(error), outcome=Outcome.REFUSED)


def _replace_if_closed(answer: ToolResult, scope: Scope, tool: CatalogTool) -> ToolResult:
    """The result of a call; a result that says so, if the closing of the session or the run has ended the call."""
    if not scope.is_closed and not scope.session_scope.is_closed:
        return answer
    if answer.code == codes.CONNECTION_CLOSED.name:
        return _closed_result(scope, tool)
    # With any other code, the call had already ended.
    return CLOSED if answer.code == codes.SCOPE_CLOSED.name else answer


def _closed_result(scope: Scope, tool: CatalogTool) -> ToolResult:
    """The result of a call that was running when the session, or the run that it was made in, was closed."""
    what = "session" if scope.session_scope.is_closed else "run"
    message = f"The {what} was closed before {tool.name} answered. The call may have taken effect."
    error = HoldfastError(codes.SCOPE_CLOSED, message)
    return structs.replace(failed_result(error), outcome=Outcome.CANCELLED)


def _add_trace(tool_call: ToolCall, span: Span) -> ToolCall:
    return structs.replace(tool_call, meta={**(tool_call.meta or {}), **span.meta})


def _not_stored_error(tool: CatalogTool, result: ToolResult, error: HoldfastError) -> HoldfastError:
    endings = {Outcome.COMPLETED: "completed", Outcome.FAILED: "failed"}
    reasons = {
        codes.STORE_FULL: "no space is left on the disk",
        codes.STORE_BUSY: "another process has locked the store",
    }
    return HoldfastError(
        codes.RESULT_NOT_STORED,
        f"{tool.name} was called and {endings.get(result.outcome, 'was ended early')}, but its result could not be stored "
        f"({reasons.get(error.code, error.code.name)}) and is lost. Do not call it again without checking what the "
        "call has done.",
        cause=error.code.name,
    )


def _closed_error() -> HoldfastError:
    return HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")
