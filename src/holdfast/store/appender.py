"""A stream of events into one session that does not wait for each commit: a bounded window is on its way, in order."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event
from holdfast.model.ids import SessionId
from holdfast.model.mask import Mask
from holdfast.store.masked import masked
from holdfast.store.projection import PASSING
from holdfast.store.rows import Appended

if TYPE_CHECKING:
    from holdfast.store.store import Tx

Also = Callable[["Tx"], object]
Write = Callable[[Callable[["Tx"], Any]], Awaitable[Any]]


class Ticket:
    """One event on its way: sooner or later it is durable, or it failed."""

    __slots__ = ("_appended", "_error", "_waiter")

    def __init__(self) -> None:
        self._appended: Appended | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_durable(self) -> bool:
        """Whether the event is on disk now."""
        return self._appended is not None

    @property
    def is_new(self) -> bool:
        """Whether the event is on disk now, and was not before."""
        return self._appended is not None and self._appended.new

    @property
    def has_failed(self) -> bool:
        """Whether the event will never be on disk."""
        return self._error is not None

    @property
    def error(self) -> Exception | None:
        """Why it will never be."""
        return self._error

    async def durable(self) -> int:
        """Wait until the event is on disk; its place in the session's log."""
        if self._appended is None and self._error is None:
            if self._waiter is None:
                self._waiter = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiter)
        if self._appended is None:
            raise self._error or AssertionError("A settled ticket has a place or an error.")
        return self._appended.seq

    async def kept(self) -> bool:
        """Wait until it is settled; whether the event is on disk then."""
        if self._appended is None:
            with suppress(Exception):  # whoever asks for `durable` hears why not
                await self.durable()
        return self.is_durable

    def settle(self, outcome: Appended | Exception) -> None:
        """Tell whoever waits."""
        if isinstance(outcome, Appended):
            self._appended = outcome
        else:
            self._error = outcome
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@dataclass(slots=True)
class _Entry:
    event: Event
    key: str | None
    also: Also | None
    ticket: Ticket = field(default_factory=Ticket)


class Appender:
    """Takes events faster than they can be committed one by one, and keeps their order.

    When one cannot be stored, it and all after it fail until the stream is mended; those before it are
    kept. Leaving the `async with` block waits for every event; without one, call `flush`.
    """

    def __init__(self, write: Write, session_id: SessionId, *, window: int, mask: Mask) -> None:
        if window < 1:
            raise HoldfastError(codes.BAD_ARGUMENT, f"A window holds at least one event, not {window}.")
        self._write = write
        self._session_id = session_id
        self._mask = mask
        self._room = asyncio.Semaphore(window)
        # Half of the window is filled while the other half is on its way to the disk.
        self._most = max(1, window // 2)
        self._waiting: deque[_Entry] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    @property
    def broken(self) -> HoldfastError | None:
        """Why nothing is taken: an earlier event could not be stored, and the stream was not mended since."""
        return None if self._broken is None else self._after_failure(self._broken)

    async def append(
        self,
        event: Event,
        *,
        key: str | None = None,
        also: Also | None = None,
        after: Ticket | None = None,
    ) -> Ticket:
        """Queue an event; waits only while the window is full.

        `also` runs in the event's own transaction, and not at all when the event is there already. What makes sense
        only `after` an earlier event fails when that one did, though the stream was mended since.
        """
        await self._room.acquire()
        entry = _Entry(masked(event, self._mask), key, also)
        broken = self._broken or (after.error if after is not None else None)
        if broken is not None:
            self._settle(entry, self._after_failure(broken))
        else:
            self._waiting.append(entry)
            self._start()
        return entry.ticket

    async def flush(self) -> None:
        """Wait until every event that was queued is durable; raises if any of the stream failed."""
        await self.settled()
        if self._broken is not None:
            raise self._after_failure(self._broken)

    async def settled(self) -> None:
        """Wait until every event that was queued is durable, or has failed."""
        while self._pump is not None:
            await asyncio.shield(self._pump)

    def mend(self) -> None:
        """Take events again. What failed stays failed: whoever mends a settled stream has heard of it."""
        self._broken = None

    async def __aenter__(self) -> "Appender":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.flush()
        elif self._pump is not None:
            await asyncio.shield(self._pump)

    def _start(self) -> None:
        if self._pump is None and self._waiting:
            self._pump = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting and self._broken is None:
                await self._commit(
                    [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                )
        finally:
            self._pump = None
            while self._broken is not None and self._waiting:
                self._settle(self._waiting.popleft(), self._after_failure(self._broken))

    async def _commit(self, entries: list[_Entry], *, careful: bool = False) -> None:
        """Commit entries together; when that fails, one by one and carefully, to find the one that is to blame."""
        reached = 0

        def append_all(tx: "Tx") -> list[Appended]:
            nonlocal reached
            reached = 0
            appended: list[Appended] = []
            for entry in entries:
                appended.append(_append(tx, self._session_id, entry))
                reached += 1
            return appended

        together = not careful and len(entries) > 1 and all(map(_is_passing, entries))
        events = [entry.event for entry in entries]
        try:
            outcomes = await self._write(
                (lambda tx: tx.append_many(self._session_id, events)) if together else append_all
            )
        except asyncio.CancelledError:
            # Only the end of the loop cancels the pump: nobody can say any more what became of these.
            self._broken = HoldfastError(codes.CANCELLED, "The stream was cancelled.")
            self._fail(entries, self._broken)
            raise
        except Exception as error:
            if together:
                await self._commit(entries, careful=True)
                return
            good, bad = (entries[:reached], entries[reached:]) if reached < len(entries) else ([], entries)
            if good:
                await self._commit(good, careful=True)
            if self._broken is None:
                self._broken = error
                self._settle(bad[0], error)
                bad = bad[1:]
            self._fail(bad, self._broken)
            return
        for entry, outcome in zip(entries, outcomes, strict=True):
            self._settle(entry, outcome)

    def _fail(self, entries: list[_Entry], reason: Exception) -> None:
        for entry in entries:
            self._settle(entry, self._after_failure(reason))

    def _settle(self, entry: _Entry, outcome: Appended | Exception) -> None:
        entry.ticket.settle(outcome)
        self._room.release()

    def _after_failure(self, reason: Exception) -> HoldfastError:
        # What passes by itself, a full disk say, is told by its own name: whoever waits can do something about it.
        passes = isinstance(reason, HoldfastError) and reason.code.retryable
        code = reason.code if isinstance(reason, HoldfastError) and passes else codes.STREAM_BROKEN
        return HoldfastError(
            code,
            f"An earlier event of {self._session_id} could not be stored, so this one was not either: {reason}",
            session_id=self._session_id,
        )


def _append(tx: "Tx", session_id: SessionId, entry: _Entry) -> Appended:
    appended = tx.append(session_id, entry.event, entry.key)
    if appended.new and entry.also is not None:
        entry.also(tx)
    return appended


def _is_passing(entry: _Entry) -> bool:
    return entry.key is None and entry.also is None and isinstance(entry.event, PASSING)
