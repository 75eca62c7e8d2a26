"""The only writer of a session: store, then tell."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, Subject, hash_arguments, kept_arguments, record
from holdfast.connect.call import Answer
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Decision,
    Event,
    ModeChanged,
    Outcome,
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
from holdfast.store.database import passes
from holdfast.store.interrupted import endings
from holdfast.store.masked import masked
from holdfast.store.rows import SessionChange
from holdfast.store.store import Reads, Store, Tx

log = logging.getLogger(__name__)

# One writer serves every session: what is kept of a single answer must not hold up the others' commits.
KEPT_BYTES = 2 * 1024 * 1024
_KEPT_TEXT = 16 * 1024
_KEPT_BLOCKS = 100

_LOST: tuple[JsonObject, ...] = (
    {"type": "text", "text": "The answer came when it could not be stored, and was not kept."},
)
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
        self._running: dict[str, Ticket] = {}
        self._turns = 0
        self._is_cut = False
        self._over = False
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

    async def stream(self, event: Event, also: Also | None = None, *, after: Ticket | None = None) -> Ticket:
        """Add an event without waiting for the disk: many are on their way at once, in order."""
        if self._over:
            raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")
        # What is told is what is stored.
        return await self._stream.keep(masked(event, self.mask), also, after=after)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A turn runs: when part of it cannot be stored, the rest of it is not either."""
        await self.mend()
        self._turns += 1
        try:
            yield
        finally:
            self._turns = max(0, self._turns - 1)

    async def mend(self) -> None:
        """Go on after a write that failed, as on a full disk: what it cut off is ended first, as after a crash."""
        if self._stream.broken is None and not self._is_cut and not self._mending.locked():
            return
        await outlast(self._mend())  # half of it, done again, would be told twice

    async def _mend(self) -> None:
        async with self._mending:
            if (broken := self._stream.broken) is not None:
                if self._turns:
                    raise broken  # the turn that runs has lost a part of itself
                self._is_cut = True
                await self._stream.mend()
            if self._is_cut:
                running = set(self._running)  # as it is now: a reader's thread sees it change
                for step in await self._store.read(lambda reads: self._cut_off(reads, running)):
                    await self._keep(step)
                self._is_cut = False

    def _cut_off(self, reads: Reads, running: Set[str]) -> "list[_Step]":
        """The ends of what has none, and does not run any more. Of what is owed, the store writes the end first."""
        return [
            _Step(ending.event, self._notes_interrupted(ending.called))
            for ending in endings(reads, self._context.session_id)
            if ending.called is None or ending.called.call_id not in running
        ]

    def _notes_interrupted(self, called: ToolCalled | None) -> Also | None:
        return None if called is None else lambda tx: self._audit.add_interrupted(tx, self._context, called)

    async def resolved(self, standing: ServersResolved, new: Sequence[Refusal]) -> None:
        """Who stands and who fell up to now; each new refusal is a record of the audit, in the same commit."""
        await self.mend()
        await (await self.stream(standing, also=self.notes_refused(new))).durable()

    def notes_refused(self, new: Sequence[Refusal]) -> Also:
        """What adds a record of the audit for each of these refusals."""
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

        return also

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
        """A call was asked for. Nobody waits for this: what comes of it is stored after it, in order."""
        await self.mend()
        event = ToolCalled(
            call_id=asked.call_id,
            server=asked.server,
            tool=asked.tool,
            arguments=_object(asked.arguments),
            title=title,
            kind=kind,
        )
        self._running[asked.call_id] = await self.stream(event)

    async def decided(self, asked: ToolCall, decision: Decision) -> None:
        """A person let a call through, or did not; returns when that is durable."""
        note = replace(
            record(AuditKind.PERMISSION, self._context, _subject(asked), outcome=decision),
            arguments_hash=hash_arguments(asked.arguments),
        )
        event = PermissionDecided(call_id=asked.call_id, decision=decision)
        await outlast(self._keep_or_owe(_Step(event, self._audit.adds(note, self.mask))))

    async def started(self, asked: ToolCall) -> None:
        """A call was let through; it may run when this returns, for then it is known whatever happens."""
        begun = self._running[asked.call_id]
        await (await self.stream(ToolStarted(call_id=asked.call_id), after=begun)).durable()

    async def ended(self, asked: ToolCall, answer: Answer, seconds: float) -> None:
        """A call is over; returns when its event and its audit are durable, in one commit."""
        large = answer.size > _OFF_LOOP
        event = await asyncio.to_thread(self._end, asked, answer) if large else self._end(asked, answer)
        note = replace(
            record(
                AuditKind.CALL, self._context, _subject(asked), outcome=answer.outcome, reason=answer.code
            ),
            duration_ms=round(seconds * 1000, 3),
            arguments_hash=hash_arguments(asked.arguments),
            arguments=self._arguments(asked),
        )
        begun = self._running.get(asked.call_id)
        try:
            if begun is not None and await begun.kept():
                await self._keep_or_owe(_Step(event, self._audit.adds(note, self.mask)))
            else:  # it was not made, and nobody has heard of it
                await self._audit.record(note, self.mask)
        finally:
            self._running.pop(asked.call_id, None)

    async def close(self, *last: tuple[Event, Also | None]) -> None:
        """The session ends with these events. What cannot be stored now is left to the store, to write when it can."""
        steps = [_Step(masked(event, self.mask), also) for event, also in last]
        self._over = True
        if self._turns:
            self._turns, self._is_cut = 0, True  # nobody will end the turn that runs
        try:
            await self.mend()
            while steps:
                await self._keep(steps[0])
                del steps[0]
        except HoldfastError as error:
            log.warning("end of the session not stored yet", extra={"reason": error.message})
            if passes(error):
                self._store.owe(lambda tx: self._write(tx, [*self._cut_off(tx, set()), *steps]))

    async def _keep_or_owe(self, step: "_Step") -> None:
        """Store what became of a call; it took place, so where that fails the store writes it as soon as it can."""
        try:
            await self.mend()
            await self._keep(step)
        except HoldfastError as error:
            if passes(error):
                owed = replace(step, event=_bare(step.event))
                self._store.owe(
                    lambda tx: self._write(tx, [owed]), lambda: self._stream.tell_late(owed.event)
                )
            raise

    async def _keep(self, step: "_Step") -> None:
        await (await self._stream.keep(step.event, step.also)).durable()

    def _write(self, tx: Tx, steps: "Sequence[_Step]") -> None:
        for step in steps:
            appended = tx.append(self._context.session_id, step.event)
            if appended.new and step.also is not None:
                step.also(tx)

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
        await outlast(self._audit.record(note, self.mask))

    def _arguments(self, asked: ToolCall) -> JsonObject | None:
        return kept_arguments(asked.arguments) if self._audit.keeps_arguments else None


@dataclass(slots=True)
class _Step:
    """What became of a call, with its record."""

    event: Event
    also: Also | None


def _bare(event: Event) -> Event:
    """An event without the answer of a tool: nobody got it, and it may be what there is no space for."""
    if isinstance(event, ToolEnded) and event.outcome is not Outcome.REFUSED:
        return ToolEnded(call_id=event.call_id, outcome=event.outcome, content=_LOST, code=event.code)
    return event


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
