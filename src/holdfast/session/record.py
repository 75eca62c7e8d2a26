"""The writer of an open session's events: each is stored, then published."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from holdfast.audit.audit import Audit
from holdfast.audit.record import (
    AuditKind,
    AuditRecord,
    Subject,
    limit_arguments,
    make_record,
    omit_arguments,
)
from holdfast.connect.call import BlockStart, ToolResult
from holdfast.masking.events import ENDS_OF_MESSAGES, MessageMasker, mask_event
from holdfast.masking.known_secrets import MAX_PIECE_LENGTH
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    OWN_AGENT,
    Decision,
    Event,
    ModeChanged,
    Origin,
    Outcome,
    PermissionDecided,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    Thought,
    ToolCalled,
    ToolEnded,
    ToolStarted,
)
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import ON_LOOP_BUDGET, SMALL_BYTES, STORED_BUDGET, Budget
from holdfast.model.resolution import Refusal
from holdfast.model.worker_threads import WorkerThreads
from holdfast.session.opening_events import refusal_records
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.subscription import EventFeed
from holdfast.store.appender import OnAppend, PendingEvent
from holdfast.store.interrupted import missing_ends
from holdfast.store.store import ReadTx, Store, Tx
from holdfast.store.types import Hold, SessionChange
from holdfast.wire.strict_json import decode_json, exceeds_budget

log = logging.getLogger(__name__)

_WINDOW = 1024
"""How many events may be waiting to be stored."""
_SHORT_EVENT_BYTES = 200
"""About the size of an event without a text."""
_LARGE_EVENT_BYTES = 512 * 1024
"""The least that the end of a call with a large result counts for: a few bytes of JSON may be thousands of objects in memory."""
_MAX_TEXT = 16 * 1024
_MAX_BLOCKS = 100
_SHORT_PROMPT_BYTES = 4 * 1024
"""A prompt up to this size is always masked on the event loop."""

_RESULT_NOT_STORED: tuple[JsonObject, ...] = (
    {"type": "text", "text": "The result could not be stored when it arrived, and was not kept."},
)
_NO_MASK = Mask()
_MASK_THREADS = WorkerThreads("mask", threads=4, per_owner=1)


class Record:
    """The events of one session, in order, with their audit records. No event is published before it is on disk."""

    def __init__(
        self,
        context: SessionContext,
        hold: Hold,
        store: Store,
        audit: Audit,
        mask: Mask,
        question_mask: Mask = _NO_MASK,
    ) -> None:
        self._context = context
        self.hold = hold
        """The right to write to the session. Once it has ended, nothing is written and no call starts."""
        self._audit = audit
        self.mask = mask
        """Masks the secrets in everything that is written."""
        self.question_mask = question_mask
        """Masks secrets in the arguments that a question shows: only those of the host, the user and the environment."""
        self._message_masker = MessageMasker(mask)
        self.events = EventFeed(hold.session_id, store)
        """Publishes the events, once they are stored."""
        # Without a mask: this class masks each event once, so that the published event equals the stored one.
        self._appender = store.appender(hold, window=_WINDOW, mask=None, feed=self.events)
        self._store = store
        self._running_calls: dict[str, PendingEvent] = {}
        self._turns = 0
        self._is_interrupted = False
        """Whether turns and calls may lack their ends, because an event could not be stored. `recover` writes the ends."""
        self._is_closed = False
        self.is_released = False
        """Whether the hold was released with the last event."""
        self._recovering = asyncio.Lock()

    def set_context(self, context: SessionContext) -> None:
        """Use this context in audit records from now on."""
        self._context = context

    def set_masks(self, mask: Mask, question_mask: Mask) -> None:
        """Use these masks from now on."""
        self.mask, self.question_mask = mask, question_mask
        self._message_masker.use(mask)

    async def flush(self) -> None:
        """Wait until every event so far is durable and published. Raises if one could not be stored."""
        await self._appender.flush()

    async def add(self, event: Event) -> None:
        """Append an event and wait until it is durable."""
        await self.recover()
        await (await self.append(event)).wait_durable()

    async def add_together(self, *events: tuple[Event, OnAppend | None]) -> None:
        """Append events, normally in one commit, and wait until they are durable. If one fails, so do all later ones."""
        await self.recover()
        pending = [await self.append(event, on_append) for event, on_append in events]
        await pending[-1].wait_durable()  # then the earlier ones are durable, too

    async def append(self, event: Event, on_append: OnAppend | None = None) -> PendingEvent:
        """Append an event without waiting for the disk. A prompt that is slow to mask is masked in a thread."""
        self._check_open()
        text = msgspec.json.encode(event.blocks) if isinstance(event, Prompted) else b""
        if _is_slow_prompt(text, self._loop_budget):
            masked = await _MASK_THREADS.run(mask_event, event, self.mask, owner=self._context.session_id)
        else:
            masked = mask_event(event, self.mask)
        return await self._append_masked(masked, on_append, size=len(text) or _text_size(masked))

    async def _append_masked(
        self,
        event: Event,
        on_append: OnAppend | None = None,
        *,
        size: int,
    ) -> PendingEvent:
        """Append an event. If it ends a message, append the delayed text of the message first. `size` is about how many bytes it has."""
        self._check_open()
        if self._message_masker.has_pending and isinstance(event, ENDS_OF_MESSAGES):
            await self._append_pending()
        return await self._queue(event, on_append, size=size)

    def _check_open(self) -> None:
        if self._is_closed:
            raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")

    async def _queue(
        self,
        event: Event,
        on_append: OnAppend | None = None,
        *,
        depends_on: PendingEvent | None = None,
        origin: Origin = OWN_AGENT,
        size: int = _SHORT_EVENT_BYTES,
    ) -> PendingEvent:
        if self._appender.is_broken:
            raise self._appender.error or AssertionError("A broken stream has an error.")
        return await self._appender.append(
            event, on_append=on_append, depends_on=depends_on, origin=origin, size=size
        )

    @property
    def _loop_budget(self) -> Budget:
        """How much may be masked on the event loop. The more secrets the mask has, the less."""
        divisor = 1 + self.mask.size // 100
        return (
            ON_LOOP_BUDGET
            if divisor == 1
            else Budget(
                bytes=ON_LOOP_BUDGET.bytes // divisor, values=max(1, ON_LOOP_BUDGET.values // divisor)
            )
        )

    async def append_piece(self, event: Replied | Thought) -> None:
        """Append a piece of a message. If a known secret may begin at its end, that part is delayed until the next piece."""
        self._check_open()
        for shown in self._message_masker.feed(event):
            await self._queue(shown, size=len(shown.text))

    async def _append_pending(self) -> None:
        for event in self._message_masker.flush():
            await self._queue(event, size=len(event.text))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Mark a turn as running: if one of its events cannot be stored, the later ones are not stored either."""
        await self.recover()
        self._turns += 1
        try:
            yield
        finally:
            self._turns = max(0, self._turns - 1)

    async def recover(self) -> None:
        """Accept events again after a failed write (on a full disk, for example).

        Interrupted turns and calls are ended first, as after a crash.
        """
        if not self._is_broken:
            return
        await run_to_completion(self._recover())  # a cancelled caller must not leave it half done

    @property
    def _is_broken(self) -> bool:
        """Whether an event could not be stored, and `recover` has not succeeded since."""
        return self._appender.is_broken or self._is_interrupted or self._recovering.locked()

    async def _recover(self) -> None:
        async with self._recovering:
            if (broken := self._appender.error) is not None:
                if self._turns:
                    raise broken  # the running turn has lost an event
                self._is_interrupted = True
                await self._appender.wait_settled()
                self._appender.reset()
            if self._is_interrupted:
                running = set(self._running_calls)  # a copy: the read runs in another thread
                for write in await self._store.read(lambda tx: self._missing_end_writes(tx, running)):
                    await self._write_durably(write)
                self._is_interrupted = False

    def _missing_end_writes(self, tx: ReadTx, running: Set[str]) -> "list[_EventWrite]":
        """The ends to write for turns and calls that have none and are not running.

        The store may be about to write one of them, too, as a postponed write. It is stored only once, because both
        writes have the same event key.
        """
        return [
            _EventWrite(end.event, self._audit_interrupted_callback(end.call), end.origin)
            for end in missing_ends(tx, self._context.session_id)
            if end.call is None or end.call.call_id not in running
        ]

    def _audit_interrupted_callback(self, call: ToolCalled | None) -> OnAppend | None:
        return None if call is None else lambda tx: self._audit.append_interrupted(tx, self._context, call)

    async def add_resolution(self, resolved: ServersResolved, new: Sequence[Refusal]) -> None:
        """Store which servers are available and which were refused; each new refusal is audited in the same commit."""
        await self.recover()
        await (await self.append(resolved, self.audit_refusals_callback(new))).wait_durable()

    def audit_refusals_callback(self, new: Sequence[Refusal]) -> OnAppend:
        """An `on_append` callback that writes an audit record for each of these refusals."""
        records = refusal_records(self._context, new, at=self._store.now())
        return self._audit.append_all_callback(records, self.mask)

    async def add_mode(self, mode: str) -> None:
        """Store that the mode was changed. The session is resumed in this mode."""
        hold = self.hold

        def on_append(tx: Tx) -> None:
            stored = tx.session(hold.session_id)
            if stored is not None:
                tx.change(hold, SessionChange(settings={**stored.settings, "mode": mode}))

        await self.recover()
        await (await self.append(ModeChanged(mode=mode), on_append)).wait_durable()

    async def add_call(
        self, tool_call: ToolCall, *, decoded: Json = None, title: str = "", kind: str = "other"
    ) -> None:
        """Append the request for a call, without waiting for the disk: later events of the call are stored after it.

        `decoded` is its arguments, or None if they are not decoded yet.
        """
        if self._is_broken:
            await self.recover()
        self._check_open()
        arguments, size = tool_call.arguments, len(tool_call.arguments)
        if size <= SMALL_BYTES:
            event = self._call_event(tool_call, decoded, title, kind)
        elif exceeds_budget(arguments, STORED_BUDGET):
            event, size = (
                self._call_event(tool_call, omit_arguments(arguments), title, kind),
                _SHORT_EVENT_BYTES,
            )
        elif exceeds_budget(arguments, self._loop_budget):
            owner = self._context.session_id
            event = await _MASK_THREADS.run(self._call_event, tool_call, None, title, kind, owner=owner)
        else:
            event = self._call_event(tool_call, decoded, title, kind)
        if self._appender.can_append_now and not self._message_masker.has_pending:
            # Committed with what follows: the start of the call, or its end.
            pending = self._appender.append_now(event, size=size, waits_for_next=True)
        else:
            pending = await self._append_masked(event, size=size)
        self._running_calls[tool_call.call_id] = pending

    def _call_event(self, tool_call: ToolCall, decoded: Json, title: str, kind: str) -> Event:
        """The masked event of a call. Decodes the arguments if `decoded` is None."""
        if decoded is None:
            decoded = decode_json(tool_call.arguments)
        event = ToolCalled(
            call_id=tool_call.call_id,
            server=tool_call.server,
            tool=tool_call.tool,
            arguments=decoded if isinstance(decoded, dict) else {"value": decoded},
            title=title,
            kind=kind,
        )
        return mask_event(event, self.mask)

    async def mask_for_question(self, arguments: bytes) -> bytes:
        """The arguments of a call as a question shows them. Raise TOO_LARGE if they are too large to be shown."""
        if exceeds_budget(arguments, STORED_BUDGET):
            raise HoldfastError(codes.TOO_LARGE, f"The arguments have {len(arguments)} bytes.")
        if exceeds_budget(arguments, self._loop_budget):
            owner = self._context.session_id
            return await _MASK_THREADS.run(_mask_arguments, arguments, self.question_mask, owner=owner)
        return _mask_arguments(arguments, self.question_mask)

    async def add_decision(self, tool_call: ToolCall, decision: Decision) -> None:
        """Store the user's decision about a call, with its audit record."""
        record = structs.replace(
            self._audit_record(AuditKind.PERMISSION, tool_call, outcome=decision),
            arguments_hash=self._audit.hash_arguments(tool_call.arguments),
        )
        event = PermissionDecided(call_id=tool_call.call_id, decision=decision)
        await run_to_completion(
            self._write_or_postpone(_EventWrite(event, self._audit.append_callback(record, self.mask)))
        )

    async def add_start(self, tool_call: ToolCall) -> None:
        """Store that a call starts. The call is made only after this has returned, so that a crash leaves a trace of it."""
        self._check_open()
        called, started = self._running_calls[tool_call.call_id], ToolStarted(call_id=tool_call.call_id)
        if self._appender.can_append_now:
            pending = self._appender.append_now(
                started, depends_on=called, size=_SHORT_EVENT_BYTES, waits_for_next=True
            )
        else:
            pending = await self._queue(started, depends_on=called)
        await pending.wait_durable()

    async def add_end(self, tool_call: ToolCall, result: ToolResult, seconds: float) -> None:
        """Store the end of a call and its audit record, in one commit, even if the caller is cancelled."""
        called, size = self._running_calls.get(tool_call.call_id), result.size
        try:
            if (
                called is None
                or not called.is_durable
                or not self._appender.can_append_now
                or self._is_broken
                or (size > SMALL_BYTES and result.exceeds(self._loop_budget))
            ):
                await run_to_completion(self._add_end_in_task(tool_call, result, seconds, called))
            else:
                await self._add_end_at_once(tool_call, result, seconds, size)
        finally:
            self._running_calls.pop(tool_call.call_id, None)

    async def _add_end_at_once(
        self, tool_call: ToolCall, result: ToolResult, seconds: float, size: int
    ) -> None:
        """Queue the end of a call at once, then wait until it is stored. Unlike `_add_end_in_task`, this needs no task."""
        event, on_append = (
            self._end_event(tool_call, result, size),
            self._audit_call_callback(tool_call, result, seconds),
        )
        kept = min(size, STORED_BUDGET.bytes)
        pending = self._appender.append_now(event, on_append, size=kept, waits_for_next=True)
        try:
            await pending.wait_to_the_end()
        finally:
            if isinstance(pending.error, HoldfastError):
                write = _EventWrite(pending.event, pending.on_append, size=pending.size)
                await run_to_completion(self._postpone_write(write))
        if pending.error is not None:
            raise pending.error

    async def _add_end_in_task(
        self, tool_call: ToolCall, result: ToolResult, seconds: float, called: PendingEvent | None
    ) -> None:
        size = result.size
        if result.exceeds(self._loop_budget):
            owner = self._context.session_id
            event = await _MASK_THREADS.run(self._end_event, tool_call, result, size, owner=owner)
            size = max(size, _LARGE_EVENT_BYTES)
        else:
            event = self._end_event(tool_call, result, size)
        if called is not None and await called.wait_settled():
            on_append = self._audit_call_callback(tool_call, result, seconds)
            write = _EventWrite(event, on_append, size=min(size, STORED_BUDGET.bytes))
            await self._write_or_postpone(write)
        else:  # the request was not stored, so the call was not made
            record = self._call_record(tool_call, result, seconds)
            await self._audit.write(record, self.mask, self.hold)

    def _audit_call_callback(self, tool_call: ToolCall, result: ToolResult, seconds: float) -> OnAppend:
        return self._audit.append_callback(self._call_record(tool_call, result, seconds), self.mask)

    def _call_record(self, tool_call: ToolCall, result: ToolResult, seconds: float) -> AuditRecord:
        context = self._context
        return AuditRecord(
            at=self._store.now(),
            kind=AuditKind.CALL,
            session_id=context.session_id,
            workspace_id=context.workspace_id,
            trust_level=context.trust_level,
            user_id=context.user_id or "",
            server=tool_call.server,
            tool=tool_call.tool,
            call_id=tool_call.call_id,
            outcome=result.outcome,
            reason=result.code,
            duration_ms=round(seconds * 1000, 3),
            arguments_hash=self._audit.hash_arguments(tool_call.arguments),
            arguments=self._arguments_for_audit(tool_call),
        )

    async def close(self, reason: str, *last: tuple[Event, OnAppend | None]) -> None:
        """Store these last events and the end of the session, and release the hold.

        If the events cannot be stored now, the store writes them later.
        """
        closed = mask_event(SessionClosed(reason=reason), self.mask)
        writes = [
            *(_EventWrite(event, None) for event in self._message_masker.flush()),
            *(_EventWrite(mask_event(event, self.mask), on_append) for event, on_append in last),
            _EventWrite(closed, lambda tx: tx.release(self.hold)),
        ]
        self._is_closed = True
        if self._turns:
            self._turns, self._is_interrupted = 0, True  # so that `recover` ends the running turn
        try:
            await self.recover()
            queued = [
                await self._queue(write.event, write.on_append, origin=write.origin, size=write.size)
                for write in writes
            ]
            for event in queued:
                await event.wait_durable()
                del writes[0]
            self.is_released = True
        except HoldfastError as error:
            log.warning("end of the session not stored yet", extra={"reason": error.message})
            with suppress(HoldfastError):
                await self._store.write(
                    lambda tx: self._write_in(tx, [*self._missing_end_writes(tx, set()), *writes]),
                    must_happen=True,
                )
        finally:
            self.events.close()

    async def _write_or_postpone(self, write: "_EventWrite") -> None:
        """Store a decision about a call, or its end. If the disk is full or locked, the store writes it later."""
        try:
            await self.recover()
            await self._write_durably(write)
        except HoldfastError:
            await self._postpone_write(write)
            raise

    async def _postpone_write(self, write: "_EventWrite") -> None:
        """Let the store write an event that could not be stored, as soon as it can."""
        postponed = replace(write, event=_without_result(write.event))
        last_seq = 0

        def write_postponed(tx: Tx) -> None:
            nonlocal last_seq
            last_seq = self._write_in(tx, [postponed])

        def publish() -> None:
            self.events.advance(last_seq)

        with suppress(HoldfastError):
            await self._store.write(write_postponed, must_happen=True, on_postponed_done=publish)
            publish()

    async def _write_durably(self, write: "_EventWrite") -> None:
        pending = await self._queue(write.event, write.on_append, origin=write.origin, size=write.size)
        await pending.wait_durable()

    def _write_in(self, tx: Tx, writes: "Sequence[_EventWrite]") -> int:
        """Append the events in this transaction. Return the number of the last one."""
        last_seq = 0
        for write in writes:
            appended = tx.append(self.hold, write.event, origin=write.origin)
            last_seq = max(last_seq, appended.seq)
            if appended.is_new and write.on_append is not None:
                write.on_append(tx)
        return last_seq

    def _end_event(self, tool_call: ToolCall, result: ToolResult, size: int) -> Event:
        whole = size <= SMALL_BYTES or not result.exceeds(STORED_BUDGET)
        event = ToolEnded(
            call_id=tool_call.call_id,
            outcome=result.outcome,
            content=tuple(
                result.content
                if whole
                else (
                    _shorten_block(block, self.mask)
                    for block in result.first_blocks(_MAX_BLOCKS, _MAX_TEXT + MAX_PIECE_LENGTH)
                )
            ),
            structured=result.data if whole else None,
            code=result.code,
        )
        return mask_event(event, self.mask)

    async def audit_rejected_call(self, tool_call: ToolCall, result: ToolResult) -> None:
        """Audit a call that has no events: its tool is unknown, or its arguments are invalid or too large."""
        record = structs.replace(
            self._audit_record(AuditKind.DENIED, tool_call, outcome=result.code, reason=result.message),
            arguments_hash=self._audit.hash_arguments(tool_call.arguments),
            arguments=self._arguments_for_audit(tool_call),
        )
        await run_to_completion(self._audit.write(record, self.mask, self.hold))

    def _audit_record(
        self, kind: AuditKind, tool_call: ToolCall, *, outcome: str, reason: str = ""
    ) -> AuditRecord:
        at = self._store.now()
        return make_record(kind, self._context, _subject(tool_call), at=at, outcome=outcome, reason=reason)

    def _arguments_for_audit(self, tool_call: ToolCall) -> JsonObject | None:
        return limit_arguments(tool_call.arguments) if self._audit.keeps_arguments else None


@dataclass(slots=True)
class _EventWrite:
    """An event to store, and a callback that writes more in the same commit."""

    event: Event
    on_append: OnAppend | None
    origin: Origin = OWN_AGENT
    size: int = _SHORT_EVENT_BYTES


def _without_result(event: Event) -> Event:
    """The event without the tool's result: the caller got none, and the result may be what did not fit on the disk."""
    if isinstance(event, ToolEnded) and event.outcome is not Outcome.REFUSED:
        return ToolEnded(
            call_id=event.call_id, outcome=event.outcome, content=_RESULT_NOT_STORED, code=event.code
        )
    return event


def _shorten_block(block: BlockStart, mask: Mask) -> JsonObject:
    """The beginning of a text block. Of any other block, only its type."""
    if block.type != "text":
        return {"type": "text", "text": f"({block.type}; too large to be kept)"}
    if len(block.text) <= _MAX_TEXT:
        return {"type": "text", "text": block.text}  # not the whole block: its other members may be large
    return {
        "type": "text",
        "text": f"{mask.mask_start(block.text, _MAX_TEXT)}… ({block.size} bytes; the rest was not kept)",
    }


def _text_size(event: Event) -> int:
    match event:
        case Replied(text=text) | Thought(text=text):
            return len(text)
        case Planned(entries=entries):
            return _SHORT_EVENT_BYTES * len(entries)
        case _:
            return _SHORT_EVENT_BYTES


def _is_slow_prompt(text: bytes, budget: Budget) -> bool:
    """Whether a prompt takes long to mask. One that contains `/call` is split into commands, and their JSON is parsed."""
    return len(text) > _SHORT_PROMPT_BYTES and (b"/call" in text or exceeds_budget(text, budget))


def _subject(tool_call: ToolCall) -> Subject:
    return Subject(server=tool_call.server, tool=tool_call.tool, call_id=tool_call.call_id)


def _mask_arguments(arguments: bytes, mask: Mask) -> bytes:
    value = decode_json(arguments)
    return msgspec.json.encode(mask.mask_known_in_json(value))
