"""A session's tool calls: each is recorded, permitted, made, and recorded again with its result."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from holdfast.connect.call import ToolResult, call, failed_result
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.scope import Scope
from holdfast.connect.server_messages import OnProgress
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome
from holdfast.model.json import Json
from holdfast.model.limits import ON_LOOP_BUDGET, SMALL_BYTES
from holdfast.session.permission import PermissionPolicy, tool_kind, tool_label
from holdfast.session.record import Record
from holdfast.session.servers import ServerDeps, Servers
from holdfast.wire.strict_json import (
    DECODE_ERRORS,
    describe_decode_error,
    exceeds_budget,
    has_more_values,
)

CANCELLED = replace(
    failed_result(HoldfastError(codes.CANCELLED, "The call was cancelled.")), outcome=Outcome.CANCELLED
)

CLOSED = replace(
    failed_result(HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")), outcome=Outcome.CANCELLED
)


class Calls:
    """Makes the calls of one session, and ends those that run when the session is closed."""

    def __init__(
        self, servers: Servers, record: Record, permission: PermissionPolicy, deps: ServerDeps
    ) -> None:
        self._servers = servers
        self._record = record
        self._permission = permission
        self._deps = deps
        self._running: set[_RunningCall] = set()
        self._is_closing = False
        self._all_ended: asyncio.Future[None] | None = None
        self._described: dict[str, tuple[CatalogTool, str, str]] = {}
        """The label and the kind of each tool that was called."""

    async def perform(
        self, tool_call: ToolCall, *, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> ToolResult:
        """Make a call, if the session's policy permits it. A refusal and a failure are results, too."""
        if self._is_closing:
            raise _closed_error()
        running = _RunningCall()
        self._running.add(running)
        try:
            return await self._perform(tool_call, timeout, on_progress, running)
        except asyncio.CancelledError:
            if running.was_cancelled_by_closing:
                raise _closed_error() from None
            raise
        finally:
            running.end()
            self._running.discard(running)
            if self._all_ended is not None and not self._running and not self._all_ended.done():
                self._all_ended.set_result(None)

    async def cancel_all(self) -> None:
        """Cancel all running calls, because the session is being closed, and wait until each has ended."""
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
        scope = self._servers.run_scope()
        scope.session_scope.check_open()
        began = time.monotonic()
        try:
            tool = await self._servers.find(tool_call.tool)
            decoded = self._decode_arguments(tool_call)
        except HoldfastError as error:
            result = failed_result(error)
            await self._record.add_unknown_tool(tool_call, result)
            return result
        tool_call = ToolCall(
            call_id=tool_call.call_id,
            server=tool.server.name,
            tool=tool.definition.name,
            arguments=tool_call.arguments,
            meta=tool_call.meta,
        )
        result = CANCELLED
        try:
            label, kind = self._describe(tool)
            await self._record.add_call(tool_call, decoded=decoded, title=label, kind=kind)
            refused = await self._find_obstacle(scope, tool_call, tool, decoded)
            if refused is None:
                refused = await self._permission.check(tool_call, tool)
            if refused is None:
                await self._record.add_start(tool_call)  # otherwise a crash would leave no trace of the call
            result = refused or await call(
                self._deps.links,
                scope,
                tool,
                tool_call,
                timeout=self._deps.options.call_seconds if timeout is None else timeout,
                on_progress=progress,
            )
            if result.state_lost:  # the server was restarted, and may be another version now
                self._servers.refresh_tools(tool.server.name)
        except HoldfastError as error:
            result = replace(failed_result(error), outcome=Outcome.REFUSED)  # the call was not made
            raise
        except asyncio.CancelledError:
            if not running.was_cancelled_by_closing:
                raise
            result = CLOSED
        finally:
            # The end of a call is stored even if the caller is cancelled.
            await self._record.add_end(tool_call, result, time.monotonic() - began)
        return result

    def _describe(self, tool: CatalogTool) -> tuple[str, str]:
        """The tool's label and its kind."""
        known = self._described.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._described[tool.name] = (tool, tool_label(tool), tool_kind(tool))
        return known[1], known[2]

    async def _find_obstacle(
        self, scope: Scope, tool_call: ToolCall, tool: CatalogTool, decoded: Json
    ) -> ToolResult | None:
        """The result of a call that would fail anyway, so that the user is not asked about it; else None."""
        error = self._deps.links.restart_error(scope, tool.server)
        if error is None:
            quota_key = scope.context.session_id
            error = await self._deps.arguments.find_error(
                tool, tool_call.arguments, quota_key=quota_key, decoded=decoded
            )
        return None if error is None else replace(failed_result(error), outcome=Outcome.REFUSED)

    def _decode_arguments(self, tool_call: ToolCall) -> Json:
        """The arguments, decoded once for all that follows; None if that takes long, and is better done in a thread.

        Refuse arguments with so many values that storing them would delay other sessions.
        """
        if len(tool_call.arguments) > SMALL_BYTES:
            values = self._deps.options.limits.values
            if has_more_values(tool_call.arguments, values):
                raise HoldfastError(
                    codes.TOO_LARGE, f"The arguments have more than {values} values. Nothing was called."
                )
            if exceeds_budget(tool_call.arguments, ON_LOOP_BUDGET):
                return None
        try:
            decoded: Json = msgspec.json.decode(tool_call.arguments)
        except DECODE_ERRORS as error:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"The arguments are not valid JSON: {describe_decode_error(error)}. Nothing was called.",
            ) from None
        return decoded


class _RunningCall:
    """A call that the current task makes."""

    __slots__ = ("_cancels_before", "_is_cancelled", "_task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancels_before = task.cancelling()
        self._is_cancelled = False

    def cancel(self) -> None:
        """Cancel the call, because its session is being closed."""
        self._is_cancelled = True
        self._task.cancel()

    @property
    def was_cancelled_by_closing(self) -> bool:
        """Whether `cancel` was called, and nothing else has cancelled the task during the call."""
        return self._is_cancelled and self._task.cancelling() == self._cancels_before + 1

    def end(self) -> None:
        """Let the task continue after a call that `cancel` has ended, as `asyncio.timeout` does."""
        if self._is_cancelled:
            self._task.uncancel()


def _closed_error() -> HoldfastError:
    return HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")


def encode_arguments(arguments: Mapping[str, Any] | None) -> bytes:
    """Encode arguments as the JSON text that is sent and hashed."""
    try:
        return msgspec.json.encode(dict(arguments or {}))
    except (TypeError, ValueError) as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"The arguments cannot be written as JSON: {error}."
        ) from None
