"""One end of a JSON-RPC connection: requests in both directions, notifications, cancellation and shutdown.

The peer does no I/O. The `pipe` and `memory` modules pass it the received bytes, as asyncio does with a protocol, and
give it a `PeerTransport` to write to. The peer guarantees that:

* a notification that arrives before a response is handled before the waiting caller continues;
* a slow handler does not block other messages: requests over the limit of requests in flight are refused, so that
  cancellations and the end of input are always read. Only a remote peer that does not read its answers makes reading
  pause;
* a flood of messages takes at most a third of the event loop's time;
* sessions that share the connection take turns;
* every waiting caller gets a response or a clear error.
"""

import asyncio
import itertools
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol, assert_never

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.deadlines import Deadlines
from holdfast.wire.frame import (
    EMPTY_OBJECT,
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
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.parse_threads import LONG_BYTES, parse_in_thread
from holdfast.wire.request_slots import RequestSlots
from holdfast.wire.send_queue import SendQueue
from holdfast.wire.strict_json import DECODE_ERRORS

log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.0005  # how long messages are handled before the event loop does other work
_BATCH_LINES = 100  # at most so many at once: the handlers that they start take time, too
_BATCH_PAUSE_SECONDS = 0.002
_HANG_UP_SECONDS = 0.5  # how often to check whether a remote peer that does not read is gone
_BURST_SECONDS = 0.01  # how much work may arrive at once before reading pauses
_numbers = itertools.count(1)
_MAX_LOGGED = 5  # malformed lines that are logged; the others are only counted


@dataclass(frozen=True, slots=True)
class CancelMethod:
    """How a protocol cancels a request: with a notification of this method from the peer that sent the request."""

    method: str
    answers_cancelled_request: bool
    """Whether the peer that receives the cancellation still answers the request, with an error."""


MCP_CANCEL = CancelMethod("notifications/cancelled", answers_cancelled_request=False)
ACP_CANCEL = CancelMethod("$/cancel_request", answers_cancelled_request=True)


class PeerError(HoldfastError):
    """An error response from the remote peer. A handler that raises it passes it on unchanged."""

    def __init__(self, rpc_code: int, message: str, data: Any = None) -> None:
        super().__init__(codes.PEER_ERROR, message)
        self.rpc_code = rpc_code
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

    def has_hung_up(self) -> bool:
        """Whether the remote peer has ended its output, although reading is paused."""
        ...

    async def close(self) -> None:
        """Flush for a limited time, then close both directions."""
        ...


@dataclass(slots=True)
class PeerStats:
    """How many received messages had no effect, and how many of ours the remote peer could not parse."""

    malformed_lines: int = 0
    unexpected_responses: int = 0  # responses to no pending request
    lines_not_understood: int = 0  # lines of ours that the remote peer reported it could not parse
    refused_requests: int = 0  # requests over the limit of requests in flight


class CancelParams(msgspec.Struct, rename="camel"):
    """The params of a cancellation; MCP and ACP use the same."""

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


def _closed_error() -> HoldfastError:
    return HoldfastError(codes.CONNECTION_CLOSED, "The connection is closed.")


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
        self._parse_task: asyncio.Task[None] | None = None
        self._throttle = LoopThrottle(burst_seconds=_BURST_SECONDS)
        self._is_resume_scheduled = False
        self._is_reading_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._unsent = SendQueue()
        self._unread_errors = 0  # errors written since the remote peer stopped reading
        self._slots = RequestSlots(limits.in_flight)
        self._pending: dict[Id, asyncio.Future[Raw]] = {}
        self._deadlines = Deadlines(self._loop, self._expire)
        # Not the same for all peers: HTTP links share connections, and a response may belong to another link's request.
        self._next_id = secrets.randbits(31)
        self._running: dict[Id, asyncio.Task[None]] = {}
        self._not_started_ids: set[Id] = set()
        self._cancelled_ids: set[Id] = set()
        self._ending_ids: set[Id] = set()  # handlers that were cancelled, or whose answer is written
        self._is_eof = False
        self._has_hung_up = False
        self._hang_up_check: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.owner = f"peer {next(_numbers)}"
        """Long messages of one owner are parsed in a limited number of threads."""
        self.ended = asyncio.Event()
        """Set when no more messages will arrive."""
        self.stats = PeerStats()

    # Sending

    async def request(
        self, method: str, params: Any = EMPTY_OBJECT, *, timeout: float | None = None, owner: str = ""
    ) -> Raw:
        """Send a request and wait for the result; send a cancellation if the caller times out or is cancelled.

        If sessions share the connection, `owner` is the session: no session can use up the connection for the others.
        """
        self._next_id += 1
        request_id = self._next_id
        line = self._check_size(request_line(request_id, method, params))
        if self._writable.is_set() and self._slots.try_acquire(owner):
            # The request can be sent at once. Only the response can take long, and `_deadlines` limits that.
            try:
                return await self._send_request(request_id, line, owner, timeout)
            except _DeadlineError:
                raise _timeout_error(method, timeout or 0.0) from None
            finally:
                self._slots.release(owner)
        try:
            async with asyncio.timeout(timeout):
                await self._slots.acquire(owner)
                try:
                    return await self._send_request(request_id, line, owner)
                finally:
                    self._slots.release(owner)
        except TimeoutError:
            raise _timeout_error(method, timeout or 0.0) from None

    async def notify(self, method: str, params: Any = EMPTY_OBJECT) -> None:
        """Send a notification. Waits only while the remote peer does not read."""
        await self._write_in_turn(self._check_size(notification_line(method, params)))

    async def notify_all(self, method: str, params: Iterable[Any]) -> None:
        """Send many notifications in one write."""
        lines = [self._check_size(notification_line(method, each)) for each in params]
        if lines:
            await self._write_in_turn(b"".join(lines))

    async def wait_idle(self) -> None:
        """Wait until every received request is answered, except the one whose handler calls this."""
        while tasks := self._other_handlers():
            await asyncio.wait(tasks)

    async def close(self, *, grace: float = 0.0) -> None:
        """Close the connection. Handlers get `grace` seconds to finish; callers of `request` get an error."""
        try:
            if grace and (tasks := self._other_handlers()):
                await asyncio.wait(tasks, timeout=grace)
            # Let every handler start: one that is cancelled before its first step never answers.
            await asyncio.sleep(0)
        finally:
            self._is_closed = True
            self._writable.set()
            self._write_unsent()
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
        if self.stats.malformed_lines > _MAX_LOGGED:
            log.warning("malformed lines skipped", extra={"count": self.stats.malformed_lines})

    def _other_handlers(self) -> list[asyncio.Task[None]]:
        """The running handlers, except the calling one."""
        current = asyncio.current_task()
        return [task for task in self._running.values() if task is not current]

    async def _send_request(
        self, request_id: Id, line: bytes, owner: str, seconds: float | None = None
    ) -> Raw:
        if self.ended.is_set():
            raise HoldfastError(codes.CONNECTION_CLOSED, "The remote peer closed the connection.")
        future: asyncio.Future[Raw] = self._loop.create_future()
        self._pending[request_id] = future
        if seconds is not None:
            self._deadlines.add(request_id, seconds)
        written: asyncio.Future[None] | None = None
        is_sent = False
        try:
            if self._is_reading_paused:
                self._process_backlog(monotonic())  # the response may come after what waits in the backlog
            if self._writable.is_set() and not self._unsent:
                self._write(line)
                is_sent = True
            else:
                written = self._unsent.add(line, owner)
                await asyncio.wait([written, future], return_when=asyncio.FIRST_COMPLETED)
                if not written.cancel():
                    written.result()
            return await future
        except (asyncio.CancelledError, _DeadlineError):
            if is_sent or (written is not None and not written.cancel()):
                self._send_cancel(request_id)
            raise
        finally:
            del self._pending[request_id]
            if seconds is not None:
                self._deadlines.remove(request_id)

    def _expire(self, request_id: Id) -> None:
        future = self._pending.get(request_id)
        if future is not None and not future.done():
            future.set_exception(_DeadlineError())

    async def _write_in_turn(self, line: bytes) -> None:
        if self._writable.is_set() and not self._unsent:
            self._write(line)
        else:
            await self._unsent.add(line, "")

    def _write_unsent(self) -> None:
        """Write waiting lines until the remote peer reads too slowly again."""
        while self._unsent and self._writable.is_set():
            if self._is_closed or self._transport is None:
                self._unsent.fail(_closed_error)
                return
            self._unsent.write_next(self._transport.write)

    def _send_cancel(self, request_id: Id) -> None:
        if not self._is_closed and not self._is_eof:
            self._write(notification_line(self._cancel_method.method, CancelParams(request_id)))

    def _check_size(self, line: bytes) -> bytes:
        if len(line) > self._limits.line_bytes:
            raise HoldfastError(
                codes.TOO_LARGE,
                f"The message has {len(line)} bytes; the maximum is {self._limits.line_bytes}.",
            )
        return line

    def _write(self, line: bytes) -> None:
        if self._is_closed or self._transport is None:
            raise _closed_error()
        self._transport.write(line)

    # Called by the transport

    def connection_made(self, transport: PeerTransport) -> None:
        """Start writing to this transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Receive bytes; a chunk need not be a whole line."""
        started = monotonic()
        self._backlog.extend(self._splitter.feed(data))
        self._process_backlog(started)

    def eof_received(self) -> None:
        """The remote peer sends no more. What has arrived is still handled."""
        if not self._is_eof:
            self._backlog.extend(self._splitter.end())
            self._is_eof = True
            self._process_backlog(monotonic())

    def connection_lost(self) -> None:
        """The connection is gone: write no more, and handle what has arrived."""
        self._transport = None
        self.resume_writing()
        self.eof_received()

    def message_received(self, message: Message) -> None:
        """Receive a message from a transport that parses messages itself."""
        self._dispatch(message)

    def request_failed(self, request_id: Id, error: HoldfastError) -> None:
        """Fail a pending request that could not be sent, or whose response was lost."""
        future = self._pending.get(request_id)
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
        self._write_unsent()
        if self._backlog:
            self._process_backlog(monotonic())

    # Receiving

    def _process_backlog(self, started: float) -> None:
        """Handle the lines that have arrived. A link that takes too much of the event loop's time has to rest."""
        if self._is_resume_scheduled:
            return
        backlog = self._backlog
        until = started + _BATCH_SECONDS
        left = _BATCH_LINES
        while backlog and self._parse_task is None:
            if self._has_too_many_unread():
                if self._hang_up_check is None:
                    self._hang_up_check = self._loop.call_later(_HANG_UP_SECONDS, self._check_hang_up)
                break
            line = backlog.popleft()
            if isinstance(line, bytes) and len(line) > LONG_BYTES:
                self._parse_task = self._loop.create_task(self._parse_long(line))
            else:
                self._dispatch(parse_line(line, self._limits))
                left -= 1
                if backlog and (not left or monotonic() > until):
                    break
        if self._throttle.count(started) or (backlog and self._parse_task is None):
            seconds = max(self._throttle.begin_rest(), 0.0 if left else _BATCH_PAUSE_SECONDS)
            if seconds or (backlog and not self._has_too_many_unread()):
                self._is_resume_scheduled = True
                self._loop.call_later(seconds, self._resume)
        is_behind = self._is_resume_scheduled or bool(backlog) or self._parse_task is not None
        self._set_reading(paused=is_behind)
        if self._is_eof and not backlog and self._parse_task is None:
            self._end("The remote peer closed the connection.")

    def _has_too_many_unread(self) -> bool:
        """Whether the remote peer must first read its answers. Not if we wait for one of its own, or if it has hung up."""
        if self._writable.is_set() or self._pending or self._has_hung_up:
            return False
        return max(len(self._ending_ids), self._unread_errors) >= self._limits.in_flight

    def _check_hang_up(self) -> None:
        self._hang_up_check = None
        if self._backlog and self._transport is not None:
            self._has_hung_up = self._transport.has_hung_up()
            self._process_backlog(monotonic())

    def _resume(self) -> None:
        self._is_resume_scheduled = False
        self._process_backlog(monotonic())

    async def _parse_long(self, line: bytes) -> None:
        try:
            message = await parse_in_thread(line, self._limits, owner=self.owner, throttle=self._throttle)
        finally:
            self._parse_task = None
        started = monotonic()
        self._dispatch(message)
        self._process_backlog(started)

    def _set_reading(self, *, paused: bool) -> None:
        if paused is self._is_reading_paused:
            return
        self._is_reading_paused = paused
        if self._transport is not None:
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _dispatch(self, message: Message | None) -> None:
        match message:
            case Response(id=request_id, result=result):
                future = self._pending.get(request_id)
                if future is None or future.done():
                    self.stats.unexpected_responses += 1
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
            case ErrorResponse(id=request_id, error=error):
                self._fail_pending(request_id, error)
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
                request.id, codes.INVALID_REQUEST.rpc_code, "A request with this id is still in flight."
            )
        elif self._is_full():
            self.stats.refused_requests += 1
            self._send_error(
                request.id, codes.BUSY.rpc_code, f"{self._limits.in_flight} requests are already in flight."
            )
        else:
            self._not_started_ids.add(request.id)
            self._running[request.id] = self._loop.create_task(self._run_handler(request))

    def _is_full(self) -> bool:
        """Whether too many requests are in flight. For the remote peer, one ends with its answer or its cancellation."""
        running, limit = len(self._running), self._limits.in_flight
        return running >= limit and (running - len(self._ending_ids) >= limit or running >= 2 * limit)

    async def _run_handler(self, request: Request) -> None:
        request_id = request.id
        self._not_started_ids.discard(request_id)
        try:
            line: bytes | None
            try:
                try:
                    line = self._check_size(result_line(request_id, await self._on_request(request)))
                except PeerError as error:
                    line = self._check_size(error_line(request_id, error.rpc_code, error.message, error.data))
                except HoldfastError as error:
                    line = error_line(request_id, error.code.rpc_code, error.message, error.details or None)
            except asyncio.CancelledError:
                line = self._cancelled_line(request_id)
            except Exception:
                log.exception("request handler crashed", extra={"method": request.method})
                line = error_line(request_id, codes.INTERNAL_ERROR.rpc_code, "Internal error.")
            if line is not None and self._transport is not None:
                self._transport.write(line)
                if not self._writable.is_set():
                    self._ending_ids.add(request_id)
                    await self._writable.wait()
        finally:
            del self._running[request_id]
            self._cancelled_ids.discard(request_id)
            self._ending_ids.discard(request_id)

    def _cancelled_line(self, request_id: Id) -> bytes | None:
        if request_id in self._cancelled_ids:
            if self._cancel_method.answers_cancelled_request:
                return error_line(request_id, codes.CANCELLED.rpc_code, "The request was cancelled.")
            return None
        if self._is_closed:
            return error_line(request_id, codes.CONNECTION_CLOSED.rpc_code, "The connection is being closed.")
        log.error("request handler raised CancelledError without being cancelled", extra={"id": request_id})
        return error_line(request_id, codes.INTERNAL_ERROR.rpc_code, "Internal error.")

    def _cancel_handler(self, notification: Notification) -> None:
        try:
            request_id = msgspec.json.decode(notification.params, type=CancelParams).request_id
        except DECODE_ERRORS:
            self._handle_malformed(Malformed(codes.BAD_ARGUMENT, "The cancellation has no valid requestId."))
            return
        task = self._running.get(request_id)
        if task is not None:
            self._cancelled_ids.add(request_id)
            self._ending_ids.add(request_id)
            if request_id in self._not_started_ids:
                # A task that is cancelled before its first step runs no `finally`, so let it start first.
                self._loop.call_soon(task.cancel)
            else:
                task.cancel()

    def _fail_pending(self, request_id: Id | None, error: ErrorBody) -> None:
        if request_id is None:
            self.stats.lines_not_understood += 1
            if self.stats.lines_not_understood <= _MAX_LOGGED:
                log.warning(
                    "remote peer could not parse one of our lines",
                    extra={"code": error.code, "reason": error.message[:200]},
                )
            return
        future = self._pending.get(request_id)
        if future is None or future.done():
            self.stats.unexpected_responses += 1
        else:
            future.set_exception(PeerError(error.code, error.message, error.data or None))

    def _handle_malformed(self, message: Malformed) -> None:
        self.stats.malformed_lines += 1
        if self.stats.malformed_lines <= _MAX_LOGGED:
            log.warning("malformed line", extra={"code": message.code.name, "reason": message.reason})
        if message.may_be_response and message.id is not None:
            future = self._pending.get(message.id)
            if future is not None and not future.done():
                future.set_exception(
                    HoldfastError(codes.BAD_ANSWER, f"The response is malformed. {message.reason}")
                )
                return
        if self._answers_malformed or (message.id is not None and not message.may_be_response):
            # We chose the id of a response. Sent back, it would look like an answer to a request of the remote peer.
            self._send_error(
                None if message.has_result_or_error else message.id, message.code.rpc_code, message.reason
            )

    def _send_error(self, request_id: Id | None, rpc: int, reason: str) -> None:
        if not self._writable.is_set():
            self._unread_errors += 1
        # Limits how much is buffered for a remote peer that keeps sending and never reads.
        if self._transport is not None and self._unread_errors <= self._limits.in_flight:
            self._transport.write(error_line(request_id, rpc, reason))

    def _end(self, reason: str) -> None:
        self.ended.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(HoldfastError(codes.CONNECTION_CLOSED, reason))
