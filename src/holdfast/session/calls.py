"""A session's tool calls: each is recorded, permitted, made, and recorded again with its result."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from holdfast.connect.call import ToolResult, call, failed_result
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.notifications import OnProgress
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome
from holdfast.session.permission import PermissionPolicy, tool_kind, tool_label
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion, wait_done
from holdfast.session.servers import ServerDeps, Servers
from holdfast.wire.strict_json import has_more_values

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
        self._running: set[asyncio.Task[ToolResult]] = set()
        self._is_closing = False

    async def perform(
        self, tool_call: ToolCall, *, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> ToolResult:
        """Make a call, if the session's policy permits it. A refusal and a failure are results, too."""
        task = asyncio.create_task(self._perform(tool_call, timeout, on_progress))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._is_closing:
                raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.") from None
            task.cancel()
            await run_to_completion(wait_done(task))
            raise

    async def cancel_all(self) -> None:
        """Cancel all running calls, because the session is being closed, and wait until each has ended."""
        self._is_closing = True
        while calls := set(self._running):
            for task in calls:
                task.cancel()
            await asyncio.wait(calls)

    async def _perform(
        self, tool_call: ToolCall, timeout: float | None, progress: OnProgress | None
    ) -> ToolResult:
        scope = self._servers.run_scope()
        scope.session_scope.check_open()
        began = time.monotonic()
        try:
            tool = await self._servers.find(tool_call.tool)
            self._check_arguments(tool_call)
        except HoldfastError as error:
            result = failed_result(error)
            await self._record.add_unknown_tool(tool_call, result)
            return result
        tool_call = replace(tool_call, server=tool.server.name, tool=tool.definition.name)
        result = CANCELLED
        try:
            await self._record.add_call(tool_call, title=tool_label(tool), kind=tool_kind(tool))
            refused = await self._find_obstacle(tool_call, tool)
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
            if not self._is_closing:
                raise
            result = CLOSED
        finally:
            # The end of a call is stored even if the caller is cancelled.
            await run_to_completion(self._record.add_end(tool_call, result, time.monotonic() - began))
        return result

    async def _find_obstacle(self, tool_call: ToolCall, tool: CatalogTool) -> ToolResult | None:
        """The result of a call that would fail anyway, so that the user is not asked about it; else None."""
        scope = self._servers.run_scope()
        error = self._deps.links.restart_error(scope, tool.server)
        if error is None:
            owner = scope.context.session_id
            error = await self._deps.arguments.find_error(tool, tool_call.arguments, owner=owner)
        return None if error is None else replace(failed_result(error), outcome=Outcome.REFUSED)

    def _check_arguments(self, tool_call: ToolCall) -> None:
        """Refuse arguments with so many values that storing them would delay other sessions."""
        values = self._deps.options.limits.values
        if has_more_values(tool_call.arguments, values):
            raise HoldfastError(
                codes.TOO_LARGE, f"The arguments have more than {values} values. Nothing was called."
            )


def encode_arguments(arguments: Mapping[str, Any] | None) -> bytes:
    """Encode arguments as the JSON text that is sent and hashed."""
    try:
        return msgspec.json.encode(dict(arguments or {}))
    except (TypeError, ValueError) as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"The arguments cannot be written as JSON: {error}."
        ) from None
