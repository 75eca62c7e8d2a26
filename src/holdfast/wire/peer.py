"""One end of a JSON-RPC connection: requests in both directions, notifications, cancellation and shutdown.

The peer does no I/O. `pipe` and `memory` feed it bytes, as asyncio feeds a protocol, and give it a `PeerTransport` to
write to. It guarantees that:

* a notification that arrives before a response is handled before the waiting caller continues;
* a slow handler does not block other messages; at the limit of requests in flight, reading pauses until one ends;
* every waiting caller gets a response or a clear error.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.deadlines import Deadlines
from holdfast.wire.frame import (
    EMPTY_PARAMS,
    ErrorBody,
    ErrorResponse,
    Id,
    Malformed,
    Message,
    Notification,
    Raw,
    Request,
    Response,
    error_line,
    notification_line,
    parse_line,
    request_line,
    result_line,
)
from holdfast.wire.lines import Line, LineSplitter
from holdfast.wire.strict_json import DECODE_ERRORS

log = logging.getLogger(__name__)

_THREAD_BYTES = 1024 * 1024  # a longer line is parsed in a thread
_BATCH_LINES = 100  # lines handled before other tasks run
_BATCH_PAUSE = 0.002  # seconds between batches: a flood of messages gets at most a third of the time
_MAX_LOGGED = 5  # malformed lines that are logged; the rest are only counted


@dataclass(frozen=True, slots=True)
class CancelMethod:
    """How a protocol cancels a request, and whether the cancelled request is still answered."""

    method: str
    is_answered: bool


MCP_CANCEL = CancelMethod("notifications/cancelled", is_answered=False)
ACP_CANCEL = CancelMethod("$/cancel_request", is_answered=True)


class PeerError(HoldfastError):
    """An error response from the remote peer. A handler that raises it passes it on unchanged."""

    def __init__(self, rpc: int, message: str, data: Any = None) -> None:
        super().__init__(codes.PEER_ERROR, message)
        self.rpc = rpc
        self.data = data


class PeerTransport(Protocol):
    """Writes for the peer, and can pause its input."""

    def write(self, data: bytes) -> None:
        """Send or buffer the bytes; never blocks."""
        ...

    def pause_reading(self) -> None:
        """Stop calling `data_received`."""
        ...

    def resume_reading(self) -> None:
        """Call `data_received` again."""
        ...

    async def close(self) -> None:
        """Flush for a limited time, then close both directions."""
        ...


@dataclass(slots=True)
class PeerStats:
    """Counts of messages that were skipped or refused."""

    malformed: int = 0
    unexpected: int = 0  # responses without a pending request
    unparsed: int = 0  # lines of ours that the remote peer could not parse
    refused: int = 0  # requests over the limit


class CancelParams(msgspec.Struct, rename="camel"):
    """The params of a cancellation, in MCP and ACP."""

    request_id: Id


RequestHandler = Callable[[Request], Awaitable[Any]]
NotificationHandler = Callable[[Notification], None]


async def _refuse_request(request: Request) -> Any:
    raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method[:80]!r}.")


def _ignore_notification(notification: Notification) -> None:
    log.debug("notification ignored", extra={"method": notification.method})


class _DeadlineError(Exception):
    """A response did not arrive in time."""


def _timeout_error(method: str, seconds: float) -> HoldfastError:
    return HoldfastError(codes.TIMEOUT, f"{method} was not answered within {seconds:g} s.")


class Peer:
    """A connection to a remote peer: send with `request` and `notify`, receive with `on_request` and `on_notification`."""

    def __init__(
        self,
        *,
        on_request: RequestHandler = _refuse_request,
        on_notification: NotificationHandler = _ignore_notification,
        cancel_method: CancelMethod = MCP_CANCEL,
        limits: Limits = DEFAULT_LIMITS,
        answers_malformed: bool = False,
    ) -> None:
        self._on_request = on_request
        self._on_notification = on_notification
        self._cancel_method = cancel_method
        self._limits = limits
        self._answers_malformed = answers_malformed
        self._loop = asyncio.get_running_loop()
        self._transport: PeerTransport | None = None
        self._splitter = LineSplitter(limits.line_bytes)
        self._backlog: deque[Line] = deque()
        self._parsing: asyncio.Task[None] | None = None
        self._is_resuming = False
        self._reading_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._unread_errors = 0  # errors written while the remote peer does not read
        self._slots = asyncio.Semaphore(limits.in_flight)
        self._pending: dict[Id, asyncio.Future[Raw]] = {}
        self._deadlines = Deadlines(self._loop, self._expire)
        self._next_id = 0
        self._running: dict[Id, asyncio.Task[None]] = {}
        self._not_started: set[Id] = set()
        self._cancelled: set[Id] = set()
        self._is_eof = False
        self._is_closed = False
        self.ended = asyncio.Event()
        """Set when no more messages will arrive."""
        self.stats = PeerStats()

    # Sending

    async def request(self, method: str, params: Any = EMPTY_PARAMS, *, timeout: float | None = None) -> Raw:
        """Send a request and wait for the result; send a cancellation if the caller times out or is cancelled."""
        self._next_id += 1
        identity = self._next_id
        line = self._check_size(request_line(identity, method, params))
        if timeout is None:
            async with self._slots:
                return await self._send_request(identity, line)
        if self._writable.is_set() and not self._slots.locked():
            # Nothing to wait for but the response: the shared timer is enough.
            try:
                async with self._slots:
                    return await self._send_request(identity, line, timeout)
            except _DeadlineError:
                raise _timeout_error(method, timeout) from None
        try:
            async with asyncio.timeout(timeout), self._slots:
                return await self._send_request(identity, line)
        except TimeoutError:
            raise _timeout_error(method, timeout) from None

    async def notify(self, method: str, params: Any = EMPTY_PARAMS) -> None:
        """Send a notification; waits only while the remote peer does not read."""
        line = self._check_size(notification_line(method, params))
        if not self._writable.is_set():
            await self._writable.wait()
        self._write(line)

    async def notify_all(self, method: str, params: Iterable[Any]) -> None:
        """Send many notifications in one write."""
        lines = [self._check_size(notification_line(method, each)) for each in params]
        if not self._writable.is_set():
            await self._writable.wait()
        if lines:
            self._write(b"".join(lines))

    async def wait_idle(self) -> None:
        """Wait until every received request is answered."""
        while tasks := self._other_handlers():
            await asyncio.wait(tasks)

    async def close(self, *, grace: float = 0.0) -> None:
        """Close the connection: handlers get `grace` seconds to finish, waiting callers get an error."""
        try:
            if grace and (tasks := self._other_handlers()):
                await asyncio.wait(tasks, timeout=grace)
            # Let every handler start: one that is cancelled before its first step would never answer.
            await asyncio.sleep(0)
        finally:
            self._is_closed = True
            self._writable.set()
            tasks = self._other_handlers()
            for task in tasks:
                task.cancel()
            self._end("The connection was closed.")
            self._deadlines.close()
        if tasks:
            await asyncio.wait(tasks)
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()
        if self.stats.malformed > _MAX_LOGGED:
            log.warning("malformed lines skipped", extra={"count": self.stats.malformed})

    def _other_handlers(self) -> list[asyncio.Task[None]]:
        """The running handlers, except the calling one."""
        me = asyncio.current_task()
        return [task for task in self._running.values() if task is not me]

    async def _send_request(self, identity: Id, line: bytes, seconds: float | None = None) -> Raw:
        if self.ended.is_set():
            raise HoldfastError(codes.CONNECTION_CLOSED, "The remote peer closed the connection.")
        future: asyncio.Future[Raw] = self._loop.create_future()
        self._pending[identity] = future
        if seconds is not None:
            self._deadlines.add(identity, seconds)
        sent = False
        try:
            if self._reading_paused:
                self._process_backlog()  # the response may be behind requests that wait in the backlog
            if not self._writable.is_set():
                await self._wait_writable_or(future)
            if not future.done():
                self._write(line)
                sent = True
            return await future
        except (asyncio.CancelledError, _DeadlineError):
            if sent:
                self._send_cancel(identity)
            raise
        finally:
            del self._pending[identity]
            if seconds is not None:
                self._deadlines.remove(identity)

    def _expire(self, identity: Id) -> None:
        future = self._pending.get(identity)
        if future is not None and not future.done():
            future.set_exception(_DeadlineError())

    async def _wait_writable_or(self, future: asyncio.Future[Raw]) -> None:
        writable = self._loop.create_task(self._writable.wait())
        try:
            await asyncio.wait([writable, future], return_when=asyncio.FIRST_COMPLETED)
        finally:
            writable.cancel()

    def _send_cancel(self, identity: Id) -> None:
        if not self._is_closed and not self._is_eof:
            self._write(notification_line(self._cancel_method.method, CancelParams(identity)))

    def _check_size(self, line: bytes) -> bytes:
        if len(line) > self._limits.line_bytes:
            raise HoldfastError(
                codes.TOO_LARGE,
                f"The message has {len(line)} bytes; the maximum is {self._limits.line_bytes}.",
            )
        return line

    def _write(self, line: bytes) -> None:
        if self._is_closed or self._transport is None:
            raise HoldfastError(codes.CONNECTION_CLOSED, "The connection is closed.")
        self._transport.write(line)

    # Called by the transport

    def connection_made(self, transport: PeerTransport) -> None:
        """Start writing to this transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Receive bytes, chunked in any way."""
        self._backlog.extend(self._splitter.feed(data))
        self._process_backlog()

    def eof_received(self) -> None:
        """Receive no more bytes; what has arrived is still handled."""
        if not self._is_eof:
            self._backlog.extend(self._splitter.end())
            self._is_eof = True
            self._process_backlog()

    def connection_lost(self) -> None:
        """Stop writing: the remote peer no longer reads."""
        self._transport = None
        self.resume_writing()
        self.eof_received()

    def message_received(self, message: Message) -> None:
        """Receive a message from a transport that parses messages itself."""
        self._dispatch(message)

    def request_failed(self, identity: Id, error: HoldfastError) -> None:
        """Fail a pending request that could not be sent, or whose response was lost."""
        future = self._pending.get(identity)
        if future is not None and not future.done():
            future.set_exception(error)

    def pause_writing(self) -> None:
        """Make senders wait: the remote peer reads too slowly."""
        if not self._is_closed:
            self._writable.clear()

    def resume_writing(self) -> None:
        """Let senders continue."""
        self._writable.set()
        self._unread_errors = 0
        if self._backlog:
            self._process_backlog()

    # Receiving

    def _process_backlog(self) -> None:
        if self._is_resuming:
            return
        backlog = self._backlog
        left = _BATCH_LINES
        while backlog and self._parsing is None:
            if max(len(self._running), self._unread_errors) >= self._limits.in_flight and not self._pending:
                break  # back-pressure; with a request pending, read on to reach its response
            if not left:
                self._is_resuming = True
                self._loop.call_later(_BATCH_PAUSE, self._resume)
                break
            left -= 1
            line = backlog.popleft()
            if isinstance(line, bytes) and len(line) > _THREAD_BYTES:
                self._parsing = self._loop.create_task(self._parse_in_thread(line))
            else:
                self._dispatch(parse_line(line, self._limits))
        is_behind = bool(backlog) or self._parsing is not None
        self._set_reading(paused=is_behind)
        if self._is_eof and not is_behind:
            self._end("The remote peer closed the connection.")

    def _resume(self) -> None:
        self._is_resuming = False
        self._process_backlog()

    async def _parse_in_thread(self, line: bytes) -> None:
        try:
            message = await asyncio.to_thread(parse_line, line, self._limits)
        finally:
            self._parsing = None
        self._dispatch(message)
        self._process_backlog()

    def _set_reading(self, *, paused: bool) -> None:
        if paused is self._reading_paused:
            return
        self._reading_paused = paused
        if self._transport is not None:
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _dispatch(self, message: Message | None) -> None:
        match message:
            case Response(id=identity, result=result):
                future = self._pending.get(identity)
                if future is None or future.done():
                    self.stats.unexpected += 1
                else:
                    future.set_result(result)
            case Request():
                self._start_handler(message)
            case Notification(method=method) if method == self._cancel_method.method:
                self._cancel_handler(message)
            case Notification():
                try:
                    self._on_notification(message)
                except Exception:
                    log.exception("notification handler crashed", extra={"method": message.method})
            case ErrorResponse(id=identity, error=error):
                self._fail_pending(identity, error)
            case Malformed():
                self._handle_malformed(message)
            case None:
                pass
            case _:
                assert_never(message)

    def _start_handler(self, request: Request) -> None:
        if self._is_closed:
            return
        if request.id in self._running:
            self._send_error(
                request.id, codes.INVALID_REQUEST.rpc, "A request with this id is still in flight."
            )
        elif len(self._running) >= self._limits.in_flight:
            self.stats.refused += 1
            self._send_error(
                request.id, codes.BUSY.rpc, f"{self._limits.in_flight} requests are already in flight."
            )
        else:
            self._not_started.add(request.id)
            self._running[request.id] = self._loop.create_task(self._run_handler(request))

    async def _run_handler(self, request: Request) -> None:
        identity = request.id
        self._not_started.discard(identity)
        try:
            line: bytes | None
            try:
                try:
                    line = self._check_size(result_line(identity, await self._on_request(request)))
                except PeerError as error:
                    line = self._check_size(error_line(identity, error.rpc, error.message, error.data))
                except HoldfastError as error:
                    line = error_line(identity, error.code.rpc, error.message, error.details or None)
            except asyncio.CancelledError:
                line = self._cancelled_line(identity)
            except Exception:
                log.exception("request handler crashed", extra={"method": request.method})
                line = error_line(identity, codes.INTERNAL_ERROR.rpc, "Internal error.")
            if line is not None and self._transport is not None:
                self._transport.write(line)
                if not self._writable.is_set():
                    await self._writable.wait()
        finally:
            del self._running[identity]
            self._cancelled.discard(identity)
            if self._backlog:
                self._process_backlog()

    def _cancelled_line(self, identity: Id) -> bytes | None:
        if identity in self._cancelled:
            if self._cancel_method.is_answered:
                return error_line(identity, codes.CANCELLED.rpc, "The request was cancelled.")
            return None
        if self._is_closed:
            return error_line(identity, codes.CONNECTION_CLOSED.rpc, "The connection is being closed.")
        log.error("request handler was cancelled from inside", extra={"id": identity})
        return error_line(identity, codes.INTERNAL_ERROR.rpc, "Internal error.")

    def _cancel_handler(self, notification: Notification) -> None:
        try:
            identity = msgspec.json.decode(notification.params, type=CancelParams).request_id
        except DECODE_ERRORS:
            self._handle_malformed(Malformed(codes.BAD_ARGUMENT, "The cancellation does not name a request."))
            return
        task = self._running.get(identity)
        if task is not None:
            self._cancelled.add(identity)
            if identity in self._not_started:
                # Cancelled before its first step, it could not answer or clean up.
                self._loop.call_soon(task.cancel)
            else:
                task.cancel()

    def _fail_pending(self, identity: Id | None, error: ErrorBody) -> None:
        if identity is None:
            self.stats.unparsed += 1
            if self.stats.unparsed <= _MAX_LOGGED:
                log.warning(
                    "remote peer could not parse a line",
                    extra={"code": error.code, "reason": error.message[:200]},
                )
            return
        future = self._pending.get(identity)
        if future is None or future.done():
            self.stats.unexpected += 1
        else:
            future.set_exception(PeerError(error.code, error.message, error.data or None))

    def _handle_malformed(self, message: Malformed) -> None:
        self.stats.malformed += 1
        if self.stats.malformed <= _MAX_LOGGED:
            log.warning("malformed line", extra={"code": message.code.name, "reason": message.reason})
        if message.is_response and message.id is not None:
            future = self._pending.get(message.id)
            if future is not None and not future.done():
                future.set_exception(
                    HoldfastError(codes.BAD_ANSWER, f"The response is malformed. {message.reason}")
                )
                return
        if self._answers_malformed or (message.id is not None and not message.is_response):
            # The id of a response is one of our own: the remote peer may use the same id for a request.
            self._send_error(
                None if message.has_result_or_error else message.id, message.code.rpc, message.reason
            )

    def _send_error(self, identity: Id | None, rpc: int, reason: str) -> None:
        if not self._writable.is_set():
            self._unread_errors += 1
        # A remote peer that keeps sending without reading gets no more errors than this.
        if self._transport is not None and self._unread_errors <= self._limits.in_flight:
            self._transport.write(error_line(identity, rpc, reason))

    def _end(self, reason: str) -> None:
        self.ended.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(HoldfastError(codes.CONNECTION_CLOSED, reason))
