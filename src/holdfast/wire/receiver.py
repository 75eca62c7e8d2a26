"""Turn received bytes into messages, within the owner's share of the event loop's time."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from holdfast.model.limits import Limits
from holdfast.wire.lines import Line, LineSplitter, OversizedLine
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.message_memory import LONG_LINE_BYTES
from holdfast.wire.messages import Message, parse_line
from holdfast.wire.parse_threads import parse_in_thread

_BATCH_SECONDS = 0.0005  # how long messages are handled before the event loop does other work
_BATCH_LINES = 100  # the most lines in one batch, because the handlers that they start also take time
_BATCH_PAUSE_SECONDS = 0.002  # how long to pause after a full batch
_HANG_UP_CHECK_SECONDS = 0.5  # how often to check whether a remote peer that does not read has hung up


class PausableTransport(Protocol):
    """What the receiver needs from a transport."""

    def pause_reading(self) -> None:
        """Stop passing bytes to the receiver."""
        ...

    def resume_reading(self) -> None:
        """Pass bytes to the receiver again."""
        ...

    def has_hung_up(self) -> bool:
        """Whether the remote peer has closed its output. This also works while reading is paused."""
        ...


class Receiver:
    """Splits the input of a connection into lines and passes each message to `dispatch`, in order.

    While the remote peer does not read (`writable` is not set) and `must_wait_for_reader()` returns True, reading is paused and
    nothing is dispatched. If the remote peer has hung up, its last messages are dispatched.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        throttle: LoopThrottle,
        dispatch: Callable[[Message | None], None],
        writable: asyncio.Event,
        must_wait_for_reader: Callable[[], bool],
        on_end: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._throttle = throttle
        self._dispatch = dispatch
        self._writable = writable
        self._must_wait_for_reader = must_wait_for_reader
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._splitter = LineSplitter(limits.line_bytes, throttle.long_line_memory)
        self._backlog: deque[Line] = deque()
        self._parse_task: asyncio.Task[None] | None = None
        self._is_resume_scheduled = False
        self._has_hung_up = False
        self._hang_up_check: asyncio.TimerHandle | None = None
        self.transport: PausableTransport | None = None
        self.is_paused = False
        """Whether reading is paused."""
        self.is_eof = False
        """Whether the end of the input was received."""

    @property
    def is_idle(self) -> bool:
        """Whether everything that was received has been dispatched."""
        return not (self._backlog or self._is_resume_scheduled or self._parse_task)

    def feed(self, data: bytes) -> None:
        """Receive bytes; a chunk need not be a whole line."""
        started = monotonic()
        self._backlog.extend(self._splitter.feed(data))
        self._process(started)

    def end(self) -> None:
        """Receive the end of the input. Lines that have arrived are still dispatched; then `on_end` is called."""
        if not self.is_eof:
            self._backlog.extend(self._splitter.end())
            self.is_eof = True
            self._process(monotonic())

    def resume(self) -> None:
        """Dispatch the waiting lines that may be dispatched now."""
        if self._backlog:
            self._process(monotonic())

    def close(self) -> None:
        """Drop the lines that have not been dispatched."""
        for line in self._backlog:
            self._splitter.release(line)
        self._backlog.clear()
        self._splitter.clear()
        # What still arrives is not counted in the owner's memory.
        self._splitter = LineSplitter(self._limits.line_bytes)

    def _process(self, started: float, *, has_turn: bool = False) -> None:
        """Dispatch some lines. If the owner of the connection has used too much of the event loop's time, pause reading.

        With `has_turn`, the throttle has given the owner a turn. Without it, the owner's other connections may have used up the share,
        so the share is checked before the first line.
        """
        if self._is_resume_scheduled:  # the throttle will call `_take_turn`
            return
        backlog = self._backlog
        throttle = self._throttle
        # `free_at` is compared first because that is cheaper than the call of `must_wait`.
        if throttle.free_at > started and backlog and not has_turn and throttle.must_wait(started):
            self._postpone(started)
            return
        batch_end = started + _BATCH_SECONDS
        lines_left = _BATCH_LINES
        while backlog and self._parse_task is None:
            if not self._writable.is_set() and self._is_blocked():
                # `resume` continues when the remote peer reads; the hang-up check continues if the remote peer has gone.
                self._watch_hang_up()
                break
            line = backlog.popleft()
            if not isinstance(line, OversizedLine) and len(line) > LONG_LINE_BYTES:
                # `_parse_long` dispatches the message and continues with the next line.
                self._parse_task = self._loop.create_task(self._parse_long(line, self._splitter))
            else:
                self._dispatch(parse_line(line, self._limits))
                lines_left -= 1
                if backlog and (not lines_left or monotonic() > batch_end):
                    break
        if self._throttle.charge_since(started) or (backlog and self._parse_task is None):
            if not lines_left:
                # The handlers that a full batch has started need time, too: pause even if the owner is within its share.
                self._is_resume_scheduled = True
                self._loop.call_later(_BATCH_PAUSE_SECONDS, self._wait_turn)
            elif self._throttle.begin_pause() or (backlog and not self._is_blocked()):
                # The owner is over its share, or lines are left that may be dispatched after the other work of the event loop.
                self._wait_turn()
        is_behind = self._is_resume_scheduled or bool(backlog) or self._parse_task is not None
        if is_behind is not self.is_paused:
            self._set_paused(paused=is_behind)
        if self.is_eof and not backlog and self._parse_task is None:
            self._on_end()

    def _postpone(self, started: float) -> None:
        self._throttle.charge_since(started)  # for splitting the bytes into lines
        self._wait_turn()
        if not self.is_paused:
            self._set_paused(paused=True)

    def _is_blocked(self) -> bool:
        return not self._writable.is_set() and not self._has_hung_up and self._must_wait_for_reader()

    def _watch_hang_up(self) -> None:
        if self._hang_up_check is None:
            self._hang_up_check = self._loop.call_later(_HANG_UP_CHECK_SECONDS, self._check_hang_up)

    def _check_hang_up(self) -> None:
        self._hang_up_check = None
        if self._backlog and self.transport is not None:
            self._has_hung_up = self.transport.has_hung_up()
            self._process(monotonic())

    def _wait_turn(self) -> None:
        self._is_resume_scheduled = True
        self._throttle.call_in_turn(self._take_turn)

    def _take_turn(self) -> None:
        self._is_resume_scheduled = False
        self._process(monotonic(), has_turn=True)

    async def _parse_long(self, line: bytes | bytearray, splitter: LineSplitter) -> None:
        try:
            message = await parse_in_thread(line, self._limits, self._throttle)
        finally:
            self._parse_task = None
            splitter.release(line)  # not `self._splitter`, which `close` replaces
        started = monotonic()
        self._dispatch(message)
        self._process(started)

    def _set_paused(self, *, paused: bool) -> None:
        self.is_paused = paused
        if self.transport is not None:
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
