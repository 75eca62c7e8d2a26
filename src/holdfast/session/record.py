"""The only writer of a session: store, then tell."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, Subject, hash_arguments, record
from holdfast.connect.call import Answer
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Decision,
    Event,
    ModeChanged,
    PermissionDecided,
    ServersResolved,
    ToolCalled,
    ToolEnded,
    ToolStarted,
)
from holdfast.model.json import Json, JsonObject
from holdfast.model.mask import Mask
from holdfast.model.resolution import Refusal
from holdfast.store.appender import Also, Ticket
from holdfast.store.masked import masked
from holdfast.store.rows import SessionChange
from holdfast.store.store import Store, Tx

log = logging.getLogger(__name__)

# One writer serves every session: what is kept of a single answer must not hold up the others' commits.
KEPT_BYTES = 2 * 1024 * 1024
_KEPT_TEXT = 16 * 1024
_KEPT_BLOCKS = 100

Listener = Callable[[Event], Awaitable[None]]
Listeners = Callable[[Sequence[Event]], Awaitable[None]]
_WINDOW = 1024
"""How many events may be on their way to the disk and to the listener."""
_PATIENCE = 0.003  # seconds for which the beginning of a call waits for its end: a quick one is one commit
_OFF_LOOP = 1024 * 1024  # a longer answer is read in a thread


class Record:
    """What happens in one session, in order. An event is told to nobody before it is on disk."""

    def __init__(self, context: SessionContext, store: Store, audit: Audit, mask: Mask) -> None:
        self._context = context
        self._audit = audit
        self.mask = mask
        """What is kept out of all that is written."""
        self._appender = store.appender(context.session_id, window=_WINDOW)
        self._listener: Listeners | None = None
        self._untold: deque[tuple[Ticket, Event]] = deque()
        self._on_their_way = 0
        self._room = asyncio.Event()
        self._room.set()
        self._teller: asyncio.Task[None] | None = None

    def become(self, context: SessionContext) -> None:
        """The session has changed: from here on its records say so."""
        self._context = context

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

    async def add(self, event: Event) -> None:
        """Add an event; returns when it is durable."""
        await (await self.stream(event)).durable()

    async def stream(self, event: Event, also: Also | None = None, *, patience: float = 0.0) -> Ticket:
        """Add an event without waiting for the disk: many are on their way at once, in order."""
        return await self._keep(masked(event, self.mask), also, patience)  # what is told is what is stored

    async def _keep(self, event: Event, also: Also | None, patience: float = 0.0) -> Ticket:
        if self._listener is None:
            return await self._appender.append(event, also=also, patience=patience)
        while self._on_their_way >= _WINDOW:
            self._room.clear()
            await self._room.wait()
        self._on_their_way += 1
        try:
            ticket = await self._appender.append(event, also=also)
        except BaseException:
            self._arrived(1)
            raise
        self._untold.append((ticket, event))
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell(self._listener))
        return ticket

    async def told(self) -> None:
        """Wait until all that was recorded is durable, and told."""
        while self._teller is not None:
            await asyncio.shield(self._teller)
        await self._appender.flush()

    async def _tell(self, listener: Listeners) -> None:
        untold = self._untold
        try:
            while untold:
                ticket = untold[0][0]
                if not ticket.is_durable:
                    await ticket.durable()
                events: list[Event] = []
                while untold and untold[0][0].is_durable:
                    events.append(untold.popleft()[1])
                try:
                    await _told(listener, events)
                finally:
                    self._arrived(len(events))
        except HoldfastError as error:
            # The disk is full, or nobody listens any more: what cannot be told is not told, what is stored is stored.
            log.warning("events are not told any more", extra={"reason": error.message})
            self._listener = None
            self._arrived(len(untold))
            untold.clear()
        finally:
            self._teller = None

    def _arrived(self, count: int) -> None:
        self._on_their_way -= count
        self._room.set()

    async def resolved(self, servers: Sequence[str], refusals: Sequence[Refusal]) -> None:
        """Who stands and who fell; each refusal is a record of the audit, in the same commit."""
        notes = [
            record(
                AuditKind.REFUSAL,
                self._context,
                Subject(server=refusal.server),
                outcome=refusal.stage,
                reason=refusal.reason,
            )
            for refusal in refusals
        ]

        def also(tx: Tx) -> None:
            for note in notes:
                self._audit.add(tx, note, self.mask)

        event = ServersResolved(servers=tuple(servers), refusals=tuple(refusals))
        await (await self.stream(event, also=also)).durable()

    async def mode_changed(self, mode: str) -> None:
        """Permission is asked differently from here on, and when the session is taken up again."""
        session_id = self._context.session_id

        def also(tx: Tx) -> None:
            stored = tx.session(session_id)
            if stored is not None:
                tx.change(session_id, SessionChange(settings={**stored.settings, "mode": mode}))

        await (await self.stream(ModeChanged(mode=mode), also=also)).durable()

    async def called(self, asked: ToolCall, *, title: str = "", kind: str = "other") -> None:
        """A call begins. Nobody waits for this: what comes of it is stored after it, in order."""
        event = ToolCalled(
            call_id=asked.call_id,
            server=asked.server,
            tool=asked.tool,
            arguments=_object(asked.arguments),
            title=title,
            kind=kind,
        )
        await self.stream(event, patience=_PATIENCE)

    async def decided(self, asked: ToolCall, decision: Decision) -> None:
        """A person let a call through, or did not."""
        note = record(AuditKind.PERMISSION, self._context, _subject(asked), outcome=decision)
        event = PermissionDecided(call_id=asked.call_id, decision=decision)
        await self.stream(event, also=self._audit.adds(note, self.mask))

    async def started(self, asked: ToolCall) -> None:
        """A call was let through and runs."""
        await self.stream(ToolStarted(call_id=asked.call_id), patience=_PATIENCE)

    async def ended(self, asked: ToolCall, answer: Answer, seconds: float) -> None:
        """A call is over; returns when its event and its audit are durable, in one commit."""
        large = answer.size > _OFF_LOOP
        event = await asyncio.to_thread(self._end, asked, answer) if large else self._end(asked, answer)
        await (await self._keep(event, self._audited(AuditKind.CALL, asked, answer, seconds))).durable()

    def _end(self, asked: ToolCall, answer: Answer) -> Event:
        whole = answer.size <= KEPT_BYTES
        event = ToolEnded(
            call_id=asked.call_id,
            outcome=answer.outcome,
            content=tuple(answer.content if whole else map(_shortened, answer.content[:_KEPT_BLOCKS])),
            structured=answer.data if whole else None,
            code=answer.code,
        )
        return masked(event, self.mask)

    async def denied(self, asked: ToolCall, answer: Answer) -> None:
        """Something was asked for that this session does not have."""
        note = replace(
            record(
                AuditKind.DENIED, self._context, _subject(asked), outcome=answer.code, reason=answer.message
            ),
            arguments_hash=hash_arguments(asked.arguments),
        )
        await self._audit.record(note, self.mask)

    def _audited(self, kind: AuditKind, asked: ToolCall, answer: Answer, seconds: float) -> Also:
        note = replace(
            record(kind, self._context, _subject(asked), outcome=answer.outcome, reason=answer.code),
            duration_ms=round(seconds * 1000, 3),
            arguments_hash=hash_arguments(asked.arguments),
        )
        return self._audit.adds(note, self.mask)


async def _told(listener: Listeners, events: Sequence[Event]) -> None:
    """Tell events; one that cannot be told, by a mistake of ours, does not silence the others."""
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


def _shortened(block: dict[str, Any]) -> JsonObject:
    """A block of an answer that is too large to keep: how it begins, or what it was."""
    text = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        if len(text) <= _KEPT_TEXT:
            return block
        return {
            "type": "text",
            "text": f"{text[:_KEPT_TEXT]}… ({len(text)} characters; the rest was not kept)",
        }
    return {"type": "text", "text": f"({str(block.get('type'))[:40]}; too large to be kept)"}


def _subject(asked: ToolCall) -> Subject:
    return Subject(server=asked.server, tool=asked.tool, call_id=asked.call_id)


def _object(raw: bytes | msgspec.Raw) -> JsonObject:
    value: Json = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {"value": value}
