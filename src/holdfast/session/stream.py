"""Events on their way: to the disk, and from there to whoever listens."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event
from holdfast.model.ids import SessionId
from holdfast.store.appender import Also, Ticket
from holdfast.store.store import Store

log = logging.getLogger(__name__)

Listener = Callable[[Event], Awaitable[None]]
Listeners = Callable[[Sequence[Event]], Awaitable[None]]
_WINDOW = 1024
"""How many events may be on their way to the disk and to the listener."""


class Stream:
    """One session's events, in order. None is told before it is on disk; one that did not get there is not told."""

    def __init__(self, session_id: SessionId, store: Store) -> None:
        self._appender = store.appender(session_id, window=_WINDOW)
        self._listener: Listeners | None = None
        self._untold: deque[tuple[Ticket, Event]] = deque()
        self._late: list[Event] = []
        self._on_their_way = 0
        self._room = asyncio.Event()
        self._room.set()
        self._teller: asyncio.Task[None] | None = None

    @property
    def broken(self) -> HoldfastError | None:
        """Why an event did not get to the disk; until it is mended, none behind it does."""
        return self._appender.broken

    async def mend(self) -> None:
        """Wait for what is on its way, then take events again."""
        await self._appender.settled()
        self._appender.mend()

    def listen(self, listener: Listener) -> None:
        """From now on, tell every event once it is durable, in order. A slow listener holds up whoever records."""

        async def each(events: Sequence[Event]) -> None:
            for event in events:
                try:
                    await listener(event)
                except HoldfastError:
                    raise
                except Exception:
                    log.exception("event not told", extra={"event": type(event).__name__})

        self.listen_to_many(each)

    def listen_to_many(self, listener: Listeners) -> None:
        """The same for a listener that takes at once what became durable at once."""
        self._listener = listener

    def tell_late(self, event: Event) -> None:
        """Tell an event that somebody else stored, before those that are on their way."""
        if self._listener is not None:
            self._late.append(event)
            self._start(self._listener)

    async def keep(self, event: Event, also: Also | None = None, *, after: Ticket | None = None) -> Ticket:
        """Take an event on its way; returns when there is room for it."""
        if (broken := self._appender.broken) is not None:
            raise broken
        if self._listener is None:
            return await self._appender.append(event, also=also, after=after)
        while self._on_their_way >= _WINDOW:
            self._room.clear()
            await self._room.wait()
        self._on_their_way += 1
        try:
            ticket = await self._appender.append(event, also=also, after=after)
        except BaseException:
            self._arrived(1)
            raise
        self._untold.append((ticket, event))
        self._start(self._listener)
        return ticket

    def _start(self, listener: Listeners) -> None:
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell(listener))

    async def told(self) -> None:
        """Wait until all that was recorded is durable, and told."""
        while self._teller is not None:
            await asyncio.shield(self._teller)
        await self._appender.flush()

    async def _tell(self, listener: Listeners) -> None:
        untold = self._untold
        try:
            while untold or self._late:
                if self._late:
                    late, self._late = self._late, []
                    await _told(listener, late)
                    continue
                if not await untold[0][0].kept():
                    self._pass_over_failed()
                    continue
                done: list[tuple[Ticket, Event]] = []
                while untold and untold[0][0].is_durable and not self._late:
                    done.append(untold.popleft())
                try:
                    # An end that was there already was told already.
                    await _told(listener, [event for ticket, event in done if ticket.is_new])
                finally:
                    self._arrived(len(done))
        except HoldfastError as error:
            # Nobody listens any more: what cannot be told is not told, what is stored is stored.
            log.warning("events are not told any more", extra={"reason": error.message})
            self._listener = None
            self._arrived(len(untold))
            untold.clear()
        finally:
            self._teller = None

    def _pass_over_failed(self) -> None:
        count = 0
        while self._untold and self._untold[0][0].has_failed:
            self._untold.popleft()
            count += 1
        self._arrived(count)
        log.warning("events not stored, and so not told", extra={"count": count})

    def _arrived(self, count: int) -> None:
        self._on_their_way -= count
        self._room.set()


async def _told(listener: Listeners, events: Sequence[Event]) -> None:
    """Tell events; one that cannot be told, by a mistake of ours, does not silence the others."""
    if not events:
        return
    try:
        await listener(events)
    except HoldfastError:
        raise
    except Exception:
        if len(events) == 1:
            log.exception("event not told", extra={"event": type(events[0]).__name__})
            return
        for event in events:
            await _told(listener, [event])
