"""One end of a JSON-RPC connection: requests in both directions, notifications, cancellation and shutdown.

The peer does no I/O. The `pipe`, `socket` and `in_memory` modules pass it the received bytes, as asyncio does with a protocol, and
give it a `PeerTransport` to write to. The peer guarantees that:

* a notification that arrives before a response is handled before the waiting caller continues;
* a slow handler does not block other messages: too many requests at once are refused, so that cancellations and the end
  of input are always read. Apart from the throttle and the parsing of long messages, reading pauses only if the remote peer does not read the
  answers to its requests;
* a flood of messages takes at most a third of the event loop's time;
* sessions that share the connection take turns;
* every waiting caller gets a response or a clear error.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Protocol, assert_never

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.light_event import LightEvent
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.deadlines import Deadlines
from holdfast.wire.fair_sharing import RequestSlots, SendQueue
from holdfast.wire.incoming_requests import (
    MAX_UNREAD_BYTES,
    MCP_CANCEL,
    CancelMethod,
    CancelParams,
    IncomingRequests,
    RequestHandler,
)
from holdfast.wire.loop_throttle import BURST_SECONDS, LoopThrottle
from holdfast.wire.messages import (
    EMPTY_OBJECT,
    ErrorBody,
    ErrorResponse,
    Id,
    Malformed,
    Message,
    Notification,
    PeerError,
    Raw,
    Request,
    Response,
    check_size,
    error_line,
    notification_line,
    notification_lines,
    request_line,
)
from holdfast.wire.receiver import PausableTransport, Receiver
from holdfast.wire.strict_json import DECODE_ERRORS

log = logging.getLogger(__name__)

_peer_numbers = itertools.count(1)
_MAX_LOGGED = 5  # the first malformed lines are reported one by one; the others are only counted


class PeerTransport(PausableTransport, Protocol):
    """Sends the bytes that the peer writes, and can pause its input."""

    def write(self, data: bytes) -> None:
        """Send or buffer the bytes; never blocks."""
        ...

    async def close(self) -> None:
        """Flush for a limited time, then close both directions."""
        ...


class PeerStats(msgspec.Struct):
    """Counts of messages that went wrong."""

    malformed_lines: int = 0
    unexpected_responses: int = 0  # responses whose id no pending request has
    lines_not_understood: int = 0  # our lines that the remote peer could not parse, according to its answer
    refused_requests: int = 0  # requests that were refused because too many were in flight


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


def _log_malformed(message: Malformed) -> None:
    log.warning("malformed line", extra={"code": message.code.name, "reason": message.reason})


def _log_many_malformed(count: int) -> None:
    log.warning("malformed lines skipped", extra={"count": count})


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
        throttle: LoopThrottle | None = None,
    ) -> None:
        """A malformed request with an id always gets an error response.

        With `answers_malformed`, so do malformed lines without an id, and malformed responses that no request waits for.
        """
        self._on_notification = on_notification
        self._cancel_method = cancel_method
        self._limits = limits
        self._answers_malformed = answers_malformed
        self._loop = asyncio.get_running_loop()
        self._transport: PeerTransport | None = None
        self._writable = LightEvent()
        self._writable.set()
        self._unsent = SendQueue()
        self._unread_errors = 0  # errors written since the remote peer stopped reading
        self._slots = RequestSlots(limits.in_flight)
        self._pending: dict[Id, asyncio.Future[Raw]] = {}
        self._deadlines = Deadlines(self._loop, self._expire)
        # The first id is random: a transport can carry the messages of several peers, and a response to another peer must not match a
        # request of this peer.
        self._next_id = int.from_bytes(os.urandom(4), "big") >> 1  # `secrets` is slow to import
        self.on_malformed: Callable[[Malformed], None] = _log_malformed
        """Called for each of the first `_MAX_LOGGED` malformed lines."""
        self.on_many_malformed: Callable[[int], None] = _log_many_malformed
        """Called on `close` with the number of all malformed lines, if there were more than `_MAX_LOGGED`."""
        self._is_closed = False
        self.throttle = throttle or LoopThrottle(f"peer {next(_peer_numbers)}", burst_seconds=BURST_SECONDS)
        """Limits how much of the event loop's time the received messages take. Connections of one owner share it."""
        self._receiver = Receiver(
            limits,
            throttle=self.throttle,
            dispatch=self._dispatch,
            writable=self._writable,
            must_wait_for_reader=self._must_wait_for_reader,
            on_end=lambda: self._end("The remote peer closed the connection."),
        )
        self._on_request = on_request
        self.ended = LightEvent()
        """Set when no more messages will arrive."""
        self.stats = PeerStats()

    @cached_property
    def _incoming(self) -> IncomingRequests:
        """Created when it is needed: most servers never send a request."""
        return IncomingRequests(
            self._on_request,
            self._write_answer,
            self._writable,
            limits=self._limits,
            answers_cancelled=self._cancel_method.answers_cancelled_request,
        )

    # Sending

    async def request(
        self, method: str, params: Any = EMPTY_OBJECT, *, timeout: float | None = None, owner: str = ""
    ) -> Raw:
        """Send a request and wait for the result. If that takes too long or the caller is cancelled, send a cancellation.

        If sessions share the connection, `owner` is the session that sends the request. No session can use the whole
        limit of requests in flight.
        """
        self._next_id += 1
        request_id = self._next_id
        line = check_size(request_line(request_id, method, params), self._limits)
        if self._writable.is_set() and self._slots.try_acquire(owner):
            # The request can be sent at once. `_deadlines` limits the time until the response.
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
        """Send a notification. This waits only while the remote peer does not read."""
        await self._write_in_turn(check_size(notification_line(method, params), self._limits))

    async def notify_all(self, method: str, params: Iterable[Any]) -> None:
        """Send many notifications in one write."""
        lines = [check_size(line, self._limits) for line in notification_lines(method, params)]
        if lines:
            await self._write_in_turn(b"".join(lines))

    async def wait_writable(self) -> None:
        """Wait until the remote peer has read enough of the bytes sent to it. Handlers call this before they make a large answer."""
        await self._writable.wait()

    async def wait_idle(self) -> None:
        """Wait until every received request is answered. A handler that calls this does not wait for its own request."""
        while tasks := self._incoming.other_tasks():
            await asyncio.wait(tasks)

    async def close(self, *, grace: float = 0.0) -> None:
        """Close the connection. Handlers get `grace` seconds to finish; callers of `request` get an error."""
        try:
            if grace and (tasks := self._incoming.other_tasks()):
                await asyncio.wait(tasks, timeout=grace)
            # Let every handler start: a handler that is cancelled before its first step sends no answer.
            await asyncio.sleep(0)
        finally:
            self._is_closed = self._incoming.is_closing = True
            self._writable.set()
            self._write_unsent()
            tasks = self._incoming.other_tasks()
            for task in tasks:
                task.cancel()
            self._end("The connection was closed.")
            self._receiver.close()
            self._deadlines.close()
        if tasks:
            await asyncio.wait(tasks)
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()
        if self.stats.malformed_lines > _MAX_LOGGED:
            self.on_many_malformed(self.stats.malformed_lines)

    async def _send_request(
        self, request_id: Id, line: bytes, owner: str, seconds: float | None = None
    ) -> Raw:
        """Send a request, at once or after the lines that wait, and wait for its result.

        If the caller is cancelled or the result takes too long, the remote peer gets a cancellation.
        """
        if self.ended.is_set():
            raise HoldfastError(codes.CONNECTION_CLOSED, "The remote peer closed the connection.")
        future: asyncio.Future[Raw] = self._loop.create_future()
        self._pending[request_id] = future
        if seconds is not None:
            self._deadlines.add(request_id, seconds)
        written: asyncio.Future[None] | None = None
        is_sent = False
        try:
            if self._receiver.is_paused:
                self._receiver.resume()  # the response may be behind waiting lines
            if self._writable.is_set() and not self._unsent:
                self._write(line)
                is_sent = True
            else:
                written = self._unsent.add(line, owner)
                await asyncio.wait([written, future], return_when=asyncio.FIRST_COMPLETED)
                # If the request fails before its line is written, the line is removed from the queue.
                if not written.cancel():
                    written.result()  # raises if the line could not be written
            return await future
        except (asyncio.CancelledError, _DeadlineError):
            # A line that is still in the queue is removed, and then needs no cancellation.
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
        """Write the line after the lines that already wait."""
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
        if not self._is_closed and not self._receiver.is_eof:
            self._write(notification_line(self._cancel_method.method, CancelParams(request_id)))

    def _write(self, line: bytes) -> None:
        if self._is_closed or self._transport is None:
            raise _closed_error()
        self._transport.write(line)

    # Called by the transport

    def connection_made(self, transport: PeerTransport) -> None:
        """Start writing to this transport."""
        self._transport = self._receiver.transport = transport

    def data_received(self, data: bytes) -> None:
        """Receive bytes; a chunk need not be a whole line."""
        self._receiver.feed(data)

    def eof_received(self) -> None:
        """Receive the end of the input. Messages that have arrived are still handled."""
        self._receiver.end()

    def connection_lost(self) -> None:
        """Stop writing. Messages that have arrived are still handled."""
        self._transport = self._receiver.transport = None
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
        self._receiver.resume()

    # Receiving

    def _must_wait_for_reader(self) -> bool:
        """Whether to stop reading until the remote peer has read more of our answers, because too many of them are unread.

        False while one of our own requests is pending, because its answer must be read.
        """
        incoming = self._incoming
        return not self._pending and (
            max(incoming.ending_count, self._unread_errors) >= self._limits.in_flight
            or incoming.unread_bytes > MAX_UNREAD_BYTES
        )

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
        if (refused := self._incoming.start(request)) is not None:
            self.stats.refused_requests += refused.code is codes.BUSY
            self._send_error(request.id, refused.code.rpc_code, refused.message)

    def _write_answer(self, line: bytes) -> None:
        if self._transport is not None:
            self._transport.write(line)

    def _cancel_handler(self, notification: Notification) -> None:
        try:
            request_id = msgspec.json.decode(notification.params, type=CancelParams).request_id
        except DECODE_ERRORS:
            self._handle_malformed(Malformed(codes.BAD_ARGUMENT, "The cancellation has no valid requestId."))
            return
        self._incoming.cancel(request_id)

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
            self.on_malformed(message)
        if message.may_be_response and message.id is not None:
            future = self._pending.get(message.id)
            if future is not None and not future.done():
                future.set_exception(
                    HoldfastError(codes.BAD_ANSWER, f"The response is malformed. {message.reason}")
                )
                return
        if self._answers_malformed or (message.id is not None and not message.may_be_response):
            # A response has the id of our own request. If we sent this id back, our error would look like the answer to one of the remote
            # peer's requests, which may have the same id.
            self._send_error(
                None if message.has_result_or_error else message.id, message.code.rpc_code, message.reason
            )

    def _send_error(self, request_id: Id | None, rpc_code: int, reason: str) -> None:
        if not self._writable.is_set():
            self._unread_errors += 1
        # Drop further errors, so that little is buffered for a remote peer that keeps sending and never reads.
        if self._transport is not None and self._unread_errors <= self._limits.in_flight:
            self._transport.write(error_line(request_id, rpc_code, reason))

    def _end(self, reason: str) -> None:
        self.ended.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(HoldfastError(codes.CONNECTION_CLOSED, reason))
