"""Run the handlers of requests from the remote peer, each in its own task, and write their answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.messages import Id, PeerError, Request, check_size, error_line, result_line

log = logging.getLogger(__name__)


MAX_UNREAD_BYTES = 4 * 1024 * 1024
"""If the remote peer has left more bytes of answers unread than this, its next requests wait."""


class CancelMethod(msgspec.Struct, frozen=True):
    """How a protocol cancels requests: the peer that sent a request sends a notification with this method."""

    method: str
    answers_cancelled_request: bool
    """Whether the peer that receives the cancellation still answers the request, with an error."""


MCP_CANCEL = CancelMethod("notifications/cancelled", answers_cancelled_request=False)
ACP_CANCEL = CancelMethod("$/cancel_request", answers_cancelled_request=True)


class CancelParams(msgspec.Struct, rename="camel"):
    """The params of a cancellation, which are the same in MCP and ACP."""

    request_id: Id


RequestHandler = Callable[[Request], Awaitable[Any]]


class IncomingRequests:
    """The requests that are being handled, each in a task.

    A request counts as in flight until it is answered or cancelled. Its task may end later.
    """

    def __init__(
        self,
        handler: RequestHandler,
        write: Callable[[bytes], None],
        writable: asyncio.Event,
        *,
        limits: Limits,
        answers_cancelled: bool,
    ) -> None:
        """`writable` is not set while the remote peer reads too slowly. `answers_cancelled` says whether cancelled requests get an answer."""
        self._handler = handler
        self._write = write
        self._writable = writable
        self._limits = limits
        self._answers_cancelled = answers_cancelled
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Id, asyncio.Task[None]] = {}
        self._not_started_ids: set[Id] = set()
        self._cancelled_ids: set[Id] = set()
        # Requests that were cancelled, or whose answer is written but not read yet. Their tasks still run.
        self._ending_ids: set[Id] = set()
        self.unread_bytes = 0
        """The size of the answers that are written, but not read yet."""
        self.is_closing = False
        """Whether the connection is being closed. A handler that is cancelled then answers with CONNECTION_CLOSED."""

    @property
    def ending_count(self) -> int:
        """The number of tasks that were cancelled, or that wait until the remote peer reads their answer."""
        return len(self._ending_ids)

    def other_tasks(self) -> list[asyncio.Task[None]]:
        """The tasks of the running handlers, except the calling task."""
        current = asyncio.current_task()
        return [task for task in self._tasks.values() if task is not current]

    def start(self, request: Request) -> HoldfastError | None:
        """Start the handler of a request, or return why it is refused."""
        tasks, limit = self._tasks, self._limits.in_flight
        if request.id in tasks:
            return HoldfastError(
                codes.INVALID_REQUEST,
                "A request with this id is still in flight. Use a new id for each request.",
            )
        # Tasks that are ending do not count towards the limit, but all tasks together are limited to twice as many.
        if len(tasks) >= limit and (len(tasks) - len(self._ending_ids) >= limit or len(tasks) >= 2 * limit):
            return HoldfastError(
                codes.BUSY, f"{limit} requests are already in flight. Wait for an answer first."
            )
        self._not_started_ids.add(request.id)
        tasks[request.id] = self._loop.create_task(self._run(request))
        return None

    def cancel(self, request_id: Id) -> None:
        """Cancel a request on behalf of the remote peer."""
        task = self._tasks.get(request_id)
        if task is not None:
            self._cancelled_ids.add(request_id)
            self._ending_ids.add(request_id)
            if request_id in self._not_started_ids:
                # A task that is cancelled before its first step runs no `finally`, so let it start first.
                self._loop.call_soon(task.cancel)
            else:
                task.cancel()

    async def _run(self, request: Request) -> None:
        """Run the handler of one request, and write its answer. While the remote peer reads too slowly, the task waits."""
        request_id = request.id
        self._not_started_ids.discard(request_id)
        try:
            line: bytes | None
            try:
                try:
                    if self.unread_bytes > MAX_UNREAD_BYTES:
                        await self._wait_for_reader()
                    result = await self._handler(request)
                    if self.unread_bytes > MAX_UNREAD_BYTES:
                        await self._wait_for_reader()
                    line = check_size(result_line(request_id, result), self._limits)
                except PeerError as error:
                    line = error_line(request_id, error.rpc_code, error.message, error.data)
                    check_size(line, self._limits)  # if it fails: the outer `except Exception` answers
                except HoldfastError as error:
                    line = error_line(request_id, error.code.rpc_code, error.message, error.details or None)
            except asyncio.CancelledError:
                line = self._cancelled_line(request_id)
            except Exception:
                log.exception("request handler crashed", extra={"method": request.method})
                line = error_line(request_id, codes.INTERNAL_ERROR.rpc_code, "Internal error.")
            if line is not None:
                self._write(line)
                if not self._writable.is_set():
                    self._ending_ids.add(request_id)
                    self.unread_bytes += len(line)
                    try:
                        await self._writable.wait()
                    finally:
                        self.unread_bytes -= len(line)
        finally:
            del self._tasks[request_id]
            self._cancelled_ids.discard(request_id)
            self._ending_ids.discard(request_id)

    async def _wait_for_reader(self) -> None:
        """Wait while more than `MAX_UNREAD_BYTES` are unread and the remote peer reads too slowly."""
        while self.unread_bytes > MAX_UNREAD_BYTES and not self._writable.is_set():
            await self._writable.wait()

    def _cancelled_line(self, request_id: Id) -> bytes | None:
        """The answer of a handler that was cancelled; None if the protocol wants none."""
        if request_id in self._cancelled_ids:
            if self._answers_cancelled:
                return error_line(request_id, codes.CANCELLED.rpc_code, "The request was cancelled.")
            return None
        if self.is_closing:
            return error_line(request_id, codes.CONNECTION_CLOSED.rpc_code, "The connection is being closed.")
        log.error("request handler raised CancelledError without being cancelled", extra={"id": request_id})
        return error_line(request_id, codes.INTERNAL_ERROR.rpc_code, "Internal error.")
