"""Read and parse the bodies of requests, within limits on size, time and total memory."""

import asyncio
from time import monotonic
from types import TracebackType
from typing import cast

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.http.limits import CallerQuota, HttpLimits
from holdfast.wire.http.request import ClientDisconnectedError, Headers, Receive
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.message_memory import LONG_LINE_BYTES
from holdfast.wire.messages import Message, parse_line
from holdfast.wire.parse_threads import parse_in_thread

_HANDLING_SECONDS_PER_VALUE = 5e-7  # about the time that later steps take for each value of a long message
# A short message is charged this many times its parsing time, because later steps read parts of the message again.
_HANDLING_FACTOR = 2


class Bodies:
    """The bodies in memory: those that are being read, and those whose requests are being answered.

    If they need too much memory, the oldest unfinished body is dropped. If only a caller's share is used up, the dropped
    body is one of this caller.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.memory = CallerQuota(total=limits.body_memory, share=limits.body_memory_per_caller)
        self._unfinished: dict[_Body, None] = {}  # oldest first
        self._timer: asyncio.TimerHandle | None = None  # fires at the deadline of the oldest body

    def read(self, receive: Receive, headers: Headers, caller_id: str) -> "_Body":
        """The body, for `async with`: it is read when the block is entered, and its memory is counted until the block ends."""
        length = headers.get("content-length", "")
        # A length of more than 18 digits is too large in any case; int() refuses very long numbers.
        if length.isdigit() and (len(length) > 18 or int(length) > self.limits.body_bytes):
            raise self.too_large()
        return _Body(self, receive, caller_id)

    def add(self, body: "_Body") -> None:
        """Watch the deadline of a body that is being read."""
        self._unfinished[body] = None
        if self._timer is None:  # one timer for all bodies costs less than one for each
            self._timer = asyncio.get_running_loop().call_at(body.deadline, self._stop_overdue)

    def remove(self, body: "_Body") -> None:
        self._unfinished.pop(body, None)

    def reserve_memory(self, body: "_Body", amount: int) -> None:
        """Count the memory for the next part of a body. If necessary, drop older bodies; raise if there is none to drop."""
        while not self.memory.try_acquire(body.caller_id, amount):
            own_only = self.memory.would_exceed_share(body.caller_id, amount)
            oldest = next(
                (
                    other
                    for other in self._unfinished
                    if other.size and (not own_only or other.caller_id == body.caller_id)
                ),
                None,
            )
            if oldest is None or oldest is body:
                raise _out_of_memory()
            del self._unfinished[oldest]
            oldest.stop(_out_of_memory())

    def too_large(self) -> HoldfastError:
        return HoldfastError(codes.TOO_LARGE, f"The body is larger than {self.limits.body_bytes} bytes.")

    def _stop_overdue(self) -> None:
        """Stop reading the overdue bodies, and set the timer for the oldest remaining one."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for body in list(self._unfinished):
            if body.deadline > loop.time():
                self._timer = loop.call_at(body.deadline, self._stop_overdue)
                return
            del self._unfinished[body]
            seconds = f"{self.limits.body_seconds:g}"
            body.stop(HoldfastError(codes.TIMEOUT, f"The body did not arrive within {seconds} s."))


class _Body:
    """One body. It is read when the block is entered, and its memory is released when the block ends."""

    __slots__ = ("_bodies", "_parts", "_receive", "_stopped_by", "_task", "caller_id", "deadline", "size")

    def __init__(self, bodies: Bodies, receive: Receive, caller_id: str) -> None:
        self.caller_id = caller_id
        self.size = 0
        """How many bytes have arrived."""
        self.deadline = asyncio.get_running_loop().time() + bodies.limits.body_seconds
        self._bodies = bodies
        self._receive = receive
        self._parts: list[bytes] = []
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._stopped_by: HoldfastError | None = None

    async def __aenter__(self) -> bytes:
        self._bodies.add(self)
        try:
            await self._read_parts()
        except BaseException as error:
            self._release()
            # `stop` cancels the task. Raise the error of `stop` instead of the cancellation, unless the task was also cancelled for
            # another reason.
            if (
                self._stopped_by is None
                or not isinstance(error, asyncio.CancelledError)
                or self._task.uncancel()
            ):
                raise
            raise self._stopped_by from None
        finally:
            self._bodies.remove(self)
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def stop(self, error: HoldfastError) -> None:
        """Release the memory, and end the reading with this error."""
        self._release()
        self._parts.clear()
        self._stopped_by = error
        self._task.cancel()

    async def _read_parts(self) -> None:
        max_size = self._bodies.limits.body_bytes
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectedError
            part: bytes = message.get("body", b"")
            if self.size + len(part) > max_size:
                raise self._bodies.too_large()
            self._bodies.reserve_memory(self, len(part))
            self.size += len(part)
            self._parts.append(part)
            if not message.get("more_body"):
                return

    def _release(self) -> None:
        self._bodies.memory.release(self.caller_id, self.size)
        self.size = 0


async def parse_body(body: bytes, limits: Limits, throttle: LoopThrottle) -> Message | None:
    """Parse the message in a body; None if the body is blank. If the caller has used up its share of the time, wait first."""
    started = monotonic()
    if throttle.free_at > started and throttle.must_wait(started):
        await throttle.pause()
        started = monotonic()
    if len(body) > LONG_LINE_BYTES:
        message = await parse_in_thread(body, limits, throttle)
        throttle.charge(
            _HANDLING_SECONDS_PER_VALUE * (body.count(b",") + body.count(b"[") + body.count(b"{"))
        )
        return message
    message = parse_line(body, limits)
    throttle.charge(_HANDLING_FACTOR * (monotonic() - started))
    return message


async def discard_body(receive: Receive, limits: HttpLimits) -> None:
    """Read and discard the body of a refused request, because many clients read the answer only after they have sent the body."""
    size = 0
    try:
        async with asyncio.timeout(min(limits.refused_body_seconds, limits.body_seconds)):
            while size <= limits.body_bytes:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        pass


def _out_of_memory() -> HoldfastError:
    return HoldfastError(
        codes.BUSY,
        "The memory for the bodies of requests is used up. Send the request again later, or send fewer requests at once.",
    )
