"""One end of a JSON-RPC conversation: requests both ways, notifications, cancellation, an orderly end.

The peer owns no file and no socket. A shell (`pipe`, `memory`) feeds it bytes and gives it a `Sink`
to write to. What it guarantees:

* a notification that came before an answer is handled before the caller of that answer goes on;
* a slow handler blocks nobody; past the limit of requests in flight, reading stops until one ends;
* whatever happens, a caller that waits gets an answer or a clear error.
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
from holdfast.model.limits import DEFAULT, Limits
from holdfast.wire.deadlines import Deadlines
from holdfast.wire.frame import (
    EMPTY,
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
    parse,
    request_line,
    result_line,
)
from holdfast.wire.lines import Line, Lines
from holdfast.wire.strict import DECODE_ERRORS

log = logging.getLogger(__name__)

_OFF_LOOP = 1024 * 1024  # a line longer than this is read in a thread
_AT_ONCE = 100  # lines read before everybody else has a turn
_BREATH = 0.002  # seconds for which they have it: a flood gets a third of the time, and no more
_COMPLAINTS = 5  # malformed lines logged one by one; the rest are only counted


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a protocol takes a request back, and whether the one taken back is still answered."""

    cancel_method: str
    answers_cancelled: bool


MCP = Dialect("notifications/cancelled", answers_cancelled=False)
ACP = Dialect("$/cancel_request", answers_cancelled=True)


class PeerError(HoldfastError):
    """The other side answered with an error. Raised in a handler, it is passed on as it came."""

    def __init__(self, rpc: int, message: str, data: Any = None) -> None:
        super().__init__(codes.PEER_ERROR, message)
        self.rpc = rpc
        self.data = data


class Sink(Protocol):
    """Where a peer's lines go, and the tap of where they come from."""

    def write(self, data: bytes) -> None:
        """Send the bytes, now or soon; never blocks."""
        ...

    def pause_reading(self) -> None:
        """Feed the peer nothing until further notice."""
        ...

    def resume_reading(self) -> None:
        """Feed the peer again."""
        ...

    async def close(self) -> None:
        """Send what is left, within reason, and let go of both directions."""
        ...


@dataclass(slots=True)
class Tally:
    """What was skipped or refused so far."""

    malformed: int = 0
    unexpected: int = 0  # answers nobody waited for
    unread: int = 0  # lines of ours that the other side could not read
    refused: int = 0  # requests past the limit


class _TakeBack(msgspec.Struct, rename="camel"):
    request_id: Id


Handle = Callable[[Request], Awaitable[Any]]
Notice = Callable[[Notification], None]


async def _no_methods(request: Request) -> Any:
    raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method[:80]!r} here.")


def _no_notices(notification: Notification) -> None:
    log.debug("notification ignored", extra={"method": notification.method})


class _Overdue(Exception):
    """An answer did not come in time."""


def _too_late(method: str, seconds: float) -> HoldfastError:
    return HoldfastError(codes.TIMEOUT, f"{method} was not answered within {seconds:g} s.")


class Peer:
    """One conversation. Talk with `request` and `notify`; `handle` and `notice` hear the other side."""

    def __init__(
        self,
        *,
        handle: Handle = _no_methods,
        notice: Notice = _no_notices,
        dialect: Dialect = MCP,
        limits: Limits = DEFAULT,
        answers_malformed: bool = False,
    ) -> None:
        self._handle = handle
        self._notice = notice
        self._dialect = dialect
        self._limits = limits
        self._answers_malformed = answers_malformed
        self._loop = asyncio.get_running_loop()
        self._sink: Sink | None = None
        self._lines = Lines(limits.line_bytes)
        self._backlog: deque[Line] = deque()
        self._in_thread: asyncio.Task[None] | None = None
        self._goes_on = False
        self._reading_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._unread = 0  # refusals written while the other side does not read
        self._slots = asyncio.Semaphore(limits.in_flight)
        self._pending: dict[Id, asyncio.Future[Raw]] = {}
        self._deadlines = Deadlines(self._loop, self._expire)
        self._next_id = 0
        self._running: dict[Id, asyncio.Task[None]] = {}
        self._not_begun: set[Id] = set()
        self._taken_back: set[Id] = set()
        self._input_over = False
        self._closed = False
        self.ended = asyncio.Event()
        """Set when the other side will say nothing more."""
        self.tally = Tally()

    # Talking

    async def request(self, method: str, params: Any = EMPTY, *, timeout: float | None = None) -> Raw:
        """Ask and wait for the answer; past the deadline, or cancelled, the request is taken back."""
        self._next_id += 1
        identity = self._next_id
        line = self._bounded(request_line(identity, method, params))
        if timeout is None:
            async with self._slots:
                return await self._ask(identity, line)
        if self._writable.is_set() and not self._slots.locked():
            # There is nothing to wait for but the answer.
            try:
                async with self._slots:
                    return await self._ask(identity, line, timeout)
            except _Overdue:
                raise _too_late(method, timeout) from None
        try:
            async with asyncio.timeout(timeout), self._slots:
                return await self._ask(identity, line)
        except TimeoutError:
            raise _too_late(method, timeout) from None

    async def notify(self, method: str, params: Any = EMPTY) -> None:
        """Tell; waits only while the other side does not read."""
        line = self._bounded(notification_line(method, params))
        if not self._writable.is_set():
            await self._writable.wait()
        self._write(line)

    async def notify_all(self, method: str, params: Iterable[Any]) -> None:
        """Tell many things in one write."""
        lines = [self._bounded(notification_line(method, each)) for each in params]
        if not self._writable.is_set():
            await self._writable.wait()
        if lines:
            self._write(b"".join(lines))

    async def idle(self) -> None:
        """Wait until every request of the other side is answered."""
        while tasks := self._others():
            await asyncio.wait(tasks)

    async def close(self, *, grace: float = 0.0) -> None:
        """End the conversation: handlers get the grace to finish, waiting callers a clear error."""
        try:
            if grace and (tasks := self._others()):
                await asyncio.wait(tasks, timeout=grace)
            await asyncio.sleep(0)  # every handler begins: one cancelled before its first step never answers
        finally:
            self._closed = True
            self._writable.set()
            tasks = self._others()
            for task in tasks:
                task.cancel()
            self._end("The connection was closed.")
            self._deadlines.close()
        if tasks:
            await asyncio.wait(tasks)
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.close()
        if self.tally.malformed > _COMPLAINTS:
            log.warning("malformed lines skipped", extra={"count": self.tally.malformed})

    def _others(self) -> list[asyncio.Task[None]]:
        """The running handlers, but the one that asks."""
        me = asyncio.current_task()
        return [task for task in self._running.values() if task is not me]

    async def _ask(self, identity: Id, line: bytes, seconds: float | None = None) -> Raw:
        if self.ended.is_set():
            raise HoldfastError(codes.CONNECTION_CLOSED, "The other side closed the connection.")
        future: asyncio.Future[Raw] = self._loop.create_future()
        self._pending[identity] = future
        if seconds is not None:
            self._deadlines.add(identity, seconds)
        sent = False
        try:
            if self._reading_paused:
                self._work()  # the answer may stand behind requests that were held up
            if not self._writable.is_set():
                await self._writable_or(future)
            if not future.done():
                self._write(line)
                sent = True
            return await future
        except (asyncio.CancelledError, _Overdue):
            if sent:
                self._take_back(identity)
            raise
        finally:
            del self._pending[identity]
            if seconds is not None:
                self._deadlines.drop(identity)

    def _expire(self, identity: Id) -> None:
        future = self._pending.get(identity)
        if future is not None and not future.done():
            future.set_exception(_Overdue())

    async def _writable_or(self, future: asyncio.Future[Raw]) -> None:
        writable = self._loop.create_task(self._writable.wait())
        try:
            await asyncio.wait([writable, future], return_when=asyncio.FIRST_COMPLETED)
        finally:
            writable.cancel()

    def _take_back(self, identity: Id) -> None:
        if not self._closed and not self._input_over:
            self._write(notification_line(self._dialect.cancel_method, _TakeBack(identity)))

    def _bounded(self, line: bytes) -> bytes:
        if len(line) > self._limits.line_bytes:
            raise HoldfastError(
                codes.TOO_LARGE, f"The message has {len(line)} bytes; {self._limits.line_bytes} is the most."
            )
        return line

    def _write(self, line: bytes) -> None:
        if self._closed or self._sink is None:
            raise HoldfastError(codes.CONNECTION_CLOSED, "The connection is closed.")
        self._sink.write(line)

    # What the shell says

    def connected(self, sink: Sink) -> None:
        """The shell gives the peer its way out."""
        self._sink = sink

    def received(self, data: bytes) -> None:
        """Bytes came in, cut anywhere."""
        self._backlog.extend(self._lines.feed(data))
        self._work()

    def input_ended(self) -> None:
        """No more bytes will come; what came is still handled."""
        if not self._input_over:
            self._backlog.extend(self._lines.end())
            self._input_over = True
            self._work()

    def lost(self) -> None:
        """Nothing can be said any more: nobody reads."""
        self._sink = None
        self.resume_writing()
        self.input_ended()

    def heard(self, message: Message) -> None:
        """A whole message came in, by a shell that cuts and reads messages itself."""
        self._hear(message)

    def undelivered(self, identity: Id, error: HoldfastError) -> None:
        """A request of ours could not be brought across, or its answer not back."""
        future = self._pending.get(identity)
        if future is not None and not future.done():
            future.set_exception(error)

    def pause_writing(self) -> None:
        """The other side reads too slowly: whoever writes waits."""
        if not self._closed:
            self._writable.clear()

    def resume_writing(self) -> None:
        """The other side reads again."""
        self._writable.set()
        self._unread = 0
        if self._backlog:
            self._work()

    # Hearing

    def _work(self) -> None:
        if self._goes_on:
            return
        backlog = self._backlog
        left = _AT_ONCE
        while backlog and self._in_thread is None:
            if max(len(self._running), self._unread) >= self._limits.in_flight and not self._pending:
                break  # back-pressure; with an answer outstanding we must read on to reach it
            if not left:
                self._goes_on = True
                self._loop.call_later(_BREATH, self._go_on)
                break
            left -= 1
            line = backlog.popleft()
            if isinstance(line, bytes) and len(line) > _OFF_LOOP:
                self._in_thread = self._loop.create_task(self._read_in_thread(line))
            else:
                self._hear(parse(line, self._limits))
        held_up = bool(backlog) or self._in_thread is not None
        self._set_reading(paused=held_up)
        if self._input_over and not held_up:
            self._end("The other side closed the connection.")

    def _go_on(self) -> None:
        self._goes_on = False
        self._work()

    async def _read_in_thread(self, line: bytes) -> None:
        try:
            message = await asyncio.to_thread(parse, line, self._limits)
        finally:
            self._in_thread = None
        self._hear(message)
        self._work()

    def _set_reading(self, *, paused: bool) -> None:
        if paused is self._reading_paused:
            return
        self._reading_paused = paused
        if self._sink is not None:
            if paused:
                self._sink.pause_reading()
            else:
                self._sink.resume_reading()

    def _hear(self, message: Message | None) -> None:
        match message:
            case Response(id=identity, result=result):
                future = self._pending.get(identity)
                if future is None or future.done():
                    self.tally.unexpected += 1
                else:
                    future.set_result(result)
            case Request():
                self._start(message)
            case Notification(method=method) if method == self._dialect.cancel_method:
                self._cancel(message)
            case Notification():
                try:
                    self._notice(message)
                except Exception:
                    log.exception("notification handler crashed", extra={"method": message.method})
            case ErrorResponse(id=identity, error=error):
                self._refused(identity, error)
            case Malformed():
                self._complain(message)
            case None:
                pass
            case _:
                assert_never(message)

    def _start(self, request: Request) -> None:
        if self._closed:
            return
        if request.id in self._running:
            self._refuse(request.id, codes.INVALID_REQUEST.rpc, "A request with this id is still in flight.")
        elif len(self._running) >= self._limits.in_flight:
            self.tally.refused += 1
            self._refuse(
                request.id, codes.BUSY.rpc, f"{self._limits.in_flight} requests are in flight already."
            )
        else:
            self._not_begun.add(request.id)
            self._running[request.id] = self._loop.create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        identity = request.id
        self._not_begun.discard(identity)
        try:
            line: bytes | None
            try:
                try:
                    line = self._bounded(result_line(identity, await self._handle(request)))
                except PeerError as error:
                    line = self._bounded(error_line(identity, error.rpc, error.message, error.data))
                except HoldfastError as error:
                    line = error_line(identity, error.code.rpc, error.message, error.details or None)
            except asyncio.CancelledError:
                line = self._answer_to_cancelled(identity)
            except Exception:
                log.exception("request handler crashed", extra={"method": request.method})
                line = error_line(identity, codes.INTERNAL_ERROR.rpc, "Internal error.")
            if line is not None and self._sink is not None:
                self._sink.write(line)
                if not self._writable.is_set():
                    await self._writable.wait()
        finally:
            del self._running[identity]
            self._taken_back.discard(identity)
            if self._backlog:
                self._work()

    def _answer_to_cancelled(self, identity: Id) -> bytes | None:
        if identity in self._taken_back:
            if self._dialect.answers_cancelled:
                return error_line(identity, codes.CANCELLED.rpc, "The request was cancelled.")
            return None
        if self._closed:
            return error_line(identity, codes.CONNECTION_CLOSED.rpc, "The connection is being closed.")
        log.error("request handler was cancelled from inside", extra={"id": identity})
        return error_line(identity, codes.INTERNAL_ERROR.rpc, "Internal error.")

    def _cancel(self, notification: Notification) -> None:
        try:
            identity = msgspec.json.decode(notification.params, type=_TakeBack).request_id
        except DECODE_ERRORS:
            self._complain(Malformed(codes.BAD_ARGUMENT, "A cancellation names no request."))
            return
        task = self._running.get(identity)
        if task is not None:
            self._taken_back.add(identity)
            if identity in self._not_begun:
                self._loop.call_soon(task.cancel)  # before its first step it could not answer or clean up
            else:
                task.cancel()

    def _refused(self, identity: Id | None, error: ErrorBody) -> None:
        if identity is None:
            self.tally.unread += 1
            if self.tally.unread <= _COMPLAINTS:
                log.warning(
                    "the other side could not read a line",
                    extra={"code": error.code, "reason": error.message[:200]},
                )
            return
        future = self._pending.get(identity)
        if future is None or future.done():
            self.tally.unexpected += 1
        else:
            future.set_exception(PeerError(error.code, error.message, error.data or None))

    def _complain(self, message: Malformed) -> None:
        self.tally.malformed += 1
        if self.tally.malformed <= _COMPLAINTS:
            log.warning("malformed line", extra={"code": message.code.name, "reason": message.reason})
        if message.is_answer and message.id is not None:
            future = self._pending.get(message.id)
            if future is not None and not future.done():
                future.set_exception(
                    HoldfastError(codes.BAD_ANSWER, f"The answer cannot be read. {message.reason}")
                )
                return
        if self._answers_malformed or (message.id is not None and not message.is_answer):
            # The number of an answer is one of ours: under it, the other side may have asked something else.
            self._refuse(None if message.has_outcome else message.id, message.code.rpc, message.reason)

    def _refuse(self, identity: Id | None, rpc: int, reason: str) -> None:
        if not self._writable.is_set():
            self._unread += 1
        # Whoever goes on asking while it reads nothing gets no more than this.
        if self._sink is not None and self._unread <= self._limits.in_flight:
            self._sink.write(error_line(identity, rpc, reason))

    def _end(self, reason: str) -> None:
        self.ended.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(HoldfastError(codes.CONNECTION_CLOSED, reason))
