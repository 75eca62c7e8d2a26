"""The only writer of a session: store, then tell."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, Subject, hash_arguments, kept_arguments, record
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
from holdfast.session.outlast import outlast
from holdfast.session.stream import Listener, Listeners, Stream
from holdfast.store.appender import Also, Ticket
from holdfast.store.interrupted import endings
from holdfast.store.masked import masked
from holdfast.store.rows import SessionChange
from holdfast.store.store import Store, Tx

log = logging.getLogger(__name__)

# One writer serves every session: what is kept of a single answer must not hold up the others' commits.
KEPT_BYTES = 2 * 1024 * 1024
_KEPT_TEXT = 16 * 1024
_KEPT_BLOCKS = 100

_PATIENCE = 0.003  # seconds for which the beginning of a call waits for its end: a quick one is one commit
_OFF_LOOP = 1024 * 1024  # a longer answer is read in a thread


class Record:
    """What happens in one session, in order. An event is told to nobody before it is on disk."""

    def __init__(self, context: SessionContext, store: Store, audit: Audit, mask: Mask) -> None:
        self._context = context
        self._audit = audit
        self.mask = mask
        """What is kept out of all that is written."""
        self._stream = Stream(context.session_id, store)
        self._store = store
        self._running: dict[str, _Begun] = {}
        self._owed: list[_Owed] = []
        self._turns = 0
        self._cut_off = False
        self._mending = asyncio.Lock()

    def become(self, context: SessionContext) -> None:
        """The session has changed: from here on its records say so."""
        self._context = context

    def listen(self, listener: Listener) -> None:
        """From now on, tell every event once it is durable, in order. A slow listener holds up whoever records."""
        self._stream.listen(listener)

    def listen_to_many(self, listener: Listeners) -> None:
        """The same for a listener that takes at once what became durable at once."""
        self._stream.listen_to_many(listener)

    async def told(self) -> None:
        """Wait until all that was recorded is durable, and told."""
        await self._stream.told()

    async def add(self, event: Event) -> None:
        """Add an event; returns when it is durable."""
        await self.mend()
        await (await self.stream(event)).durable()

    async def stream(self, event: Event, also: Also | None = None, *, patience: float = 0.0) -> Ticket:
        """Add an event without waiting for the disk: many are on their way at once, in order."""
        return await self._stream.keep(
            masked(event, self.mask), also, patience
        )  # what is told is what is stored

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A turn runs: when part of it cannot be stored, the rest of it is not either."""
        await self.mend()
        self._turns += 1
        try:
            yield
        finally:
            self._turns -= 1

    async def mend(self) -> None:
        """Go on after a write that failed, as on a full disk: what it cut off is ended first, as after a crash."""
        if self._stream.broken is None and not self._unmended and not self._mending.locked():
            return
        await outlast(self._mend())  # half of it, done again, would be told twice

    @property
    def _unmended(self) -> bool:
        return self._cut_off or bool(self._owed)

    async def _mend(self) -> None:
        async with self._mending:
            if (broken := self._stream.broken) is not None:
                if self._turns:
                    raise broken  # the turn that runs has lost a part of itself
                self._cut_off = True
                await self._stream.mend()
            await self._pay()
            if self._cut_off:
                await self._end_what_was_cut_off()
                self._cut_off = False

    async def _pay(self) -> None:
        while self._owed:
            try:
                await self._add_end(self._owed[0])
            except HoldfastError as error:
                if error.code.retryable:
                    raise
                log.exception("end of a call not stored")
                await self._stream.mend()
            self._owed.pop(0)

    async def _end_what_was_cut_off(self) -> None:
        session_id = self._context.session_id
        for ending in await self._store.read(lambda reads: endings(reads, session_id)):
            called = ending.called
            if called is None or called.call_id not in self._running:
                also = None if called is None else self._notes_interrupted(called)
                await (await self._stream.keep(ending.event, also)).durable()

    def _notes_interrupted(self, called: ToolCalled) -> Also:
        return lambda tx: self._audit.add_interrupted(tx, self._context, called)

    async def resolved(self, standing: ServersResolved, new: Sequence[Refusal]) -> None:
        """Who stands and who fell up to now; each new refusal is a record of the audit, in the same commit."""
        notes = [
            record(
                AuditKind.REFUSAL,
                self._context,
                Subject(server=refusal.server),
                outcome=refusal.stage,
                reason=refusal.reason,
            )
            for refusal in new
        ]

        def also(tx: Tx) -> None:
            for note in notes:
                self._audit.add(tx, note, self.mask)

        await self.mend()
        await (await self.stream(standing, also=also)).durable()

    async def mode_changed(self, mode: str) -> None:
        """Permission is asked differently from here on, and when the session is taken up again."""
        session_id = self._context.session_id

        def also(tx: Tx) -> None:
            stored = tx.session(session_id)
            if stored is not None:
                tx.change(session_id, SessionChange(settings={**stored.settings, "mode": mode}))

        await self.mend()
        await (await self.stream(ModeChanged(mode=mode), also=also)).durable()

    async def called(self, asked: ToolCall, *, title: str = "", kind: str = "other") -> None:
        """A call begins. Nobody waits for this: what comes of it is stored after it, in order."""
        await self.mend()
        event = ToolCalled(
            call_id=asked.call_id,
            server=asked.server,
            tool=asked.tool,
            arguments=_object(asked.arguments),
            title=title,
            kind=kind,
        )
        event = masked(event, self.mask)
        ticket = await self._stream.keep(event, None, _PATIENCE)
        self._running[asked.call_id] = _Begun(event, ticket)

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
        also = self._audited(AuditKind.CALL, asked, answer, seconds)
        end = _Owed(self._running.get(asked.call_id), event, also)
        try:
            await self.mend()
            await self._add_end(end)
        except HoldfastError:
            # It took place: its record is written as soon as it can be, without the answer that nobody got.
            bare = ToolEnded(call_id=asked.call_id, outcome=answer.outcome, code=answer.code)
            self._owed.append(replace(end, event=bare))
            raise
        finally:
            self._running.pop(asked.call_id, None)

    async def _add_end(self, end: "_Owed") -> None:
        begun = end.begun
        if begun is not None and begun.ticket.has_failed:
            begun.ticket = await self._stream.keep(begun.event, None)
        await (await self._stream.keep(end.event, end.also)).durable()

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
            arguments=self._arguments(asked),
        )
        await self._audit.record(note, self.mask)

    def _audited(self, kind: AuditKind, asked: ToolCall, answer: Answer, seconds: float) -> Also:
        note = replace(
            record(kind, self._context, _subject(asked), outcome=answer.outcome, reason=answer.code),
            duration_ms=round(seconds * 1000, 3),
            arguments_hash=hash_arguments(asked.arguments),
            arguments=self._arguments(asked),
        )
        return self._audit.adds(note, self.mask)

    def _arguments(self, asked: ToolCall) -> JsonObject | None:
        return kept_arguments(asked.arguments) if self._audit.keeps_arguments else None


@dataclass(slots=True)
class _Begun:
    """A call that runs, and what became of the event that says so."""

    event: Event
    ticket: Ticket


@dataclass(slots=True)
class _Owed:
    """The end of a call, with its record."""

    begun: _Begun | None
    event: Event
    also: Also


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
