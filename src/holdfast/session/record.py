"""The writer of an open session's events: each is stored, then published."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import msgspec

from holdfast.audit.audit import Audit
from holdfast.audit.record import (
    AuditKind,
    AuditRecord,
    Subject,
    hash_arguments,
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
    Thought,
    ToolCalled,
    ToolEnded,
    ToolStarted,
)
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import ON_LOOP, STORED, Budget
from holdfast.model.resolution import Refusal
from holdfast.model.worker_threads import WorkerThreads
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.subscription import EventFeed
from holdfast.store.appender import OnAppend, PendingEvent
from holdfast.store.interrupted import missing_ends
from holdfast.store.store import ReadTx, Store, Tx
from holdfast.store.types import Hold, SessionChange
from holdfast.wire.strict_json import is_over

log = logging.getLogger(__name__)

_WINDOW = 1024
"""How many events may be on their way to the disk."""
_SMALL = 200  # about the size of an event without a text
_MAX_TEXT = 16 * 1024
_MAX_BLOCKS = 100
_MAX_COMMANDS_ON_LOOP = 4 * 1024

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
        self._appender = store.appender(hold, window=_WINDOW, on_stored=self.events.publish)
        self._store = store
        self._running_calls: dict[str, PendingEvent] = {}
        self._turns = 0
        self._is_interrupted = False
        self._is_closed = False
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

    async def append(
        self,
        event: Event,
        on_append: OnAppend | None = None,
        *,
        depends_on: PendingEvent | None = None,
        size: int | None = None,
        is_slow: bool = False,
    ) -> PendingEvent:
        """Append an event without waiting for the disk. One that is slow to mask is masked in a thread.

        `size` is about how many bytes the event has; by default, as many as its text.
        """
        if self._is_closed:
            raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")
        if self._message_masker.has_pending and isinstance(event, ENDS_OF_MESSAGES):
            await self._append_pending()
        # Masked here, so that the published event equals the stored one.
        if isinstance(event, Prompted):
            text = msgspec.json.encode(event.blocks)
            size, is_slow = len(text), _is_slow_prompt(text, self._loop_budget)
        if is_slow:
            masked = await _MASK_THREADS.run(mask_event, event, self.mask, owner=self._context.session_id)
        else:
            masked = mask_event(event, self.mask)
        return await self._queue(
            masked, on_append, depends_on=depends_on, size=_text_size(masked) if size is None else size
        )

    async def _queue(
        self,
        event: Event,
        on_append: OnAppend | None = None,
        *,
        depends_on: PendingEvent | None = None,
        origin: Origin = OWN_AGENT,
        size: int = _SMALL,
    ) -> PendingEvent:
        if (broken := self._appender.error) is not None:
            raise broken
        return await self._appender.append(
            event, on_append=on_append, depends_on=depends_on, origin=origin, size=size
        )

    @property
    def _loop_budget(self) -> Budget:
        """What may be masked without occupying the event loop for too long."""
        share = 1 + self.mask.size // 100
        return (
            ON_LOOP
            if share == 1
            else Budget(bytes=ON_LOOP.bytes // share, values=max(1, ON_LOOP.values // share))
        )

    async def append_piece(self, event: Replied | Thought) -> None:
        """Append a piece of a message. Its end waits for the next piece while a known secret may begin there."""
        if self._is_closed:
            raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")
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
        """Accept events again after a failed write (on a full disk, say).

        Interrupted turns and calls are ended first, as after a crash.
        """
        if self._appender.error is None and not self._is_interrupted and not self._recovering.locked():
            return
        await run_to_completion(self._recover())  # a cancelled caller must not leave it half done

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

        An end that the store has deferred may be among them. It is written only once, as both have the same key.
        """
        return [
            _EventWrite(end.event, self._audit_interrupted(end.call), end.origin)
            for end in missing_ends(tx, self._context.session_id)
            if end.call is None or end.call.call_id not in running
        ]

    def _audit_interrupted(self, call: ToolCalled | None) -> OnAppend | None:
        return None if call is None else lambda tx: self._audit.append_interrupted(tx, self._context, call)

    async def add_resolution(self, resolved: ServersResolved, new: Sequence[Refusal]) -> None:
        """Store which servers are available and which were refused; each new refusal is audited in the same commit."""
        await self.recover()
        await (await self.append(resolved, self.audit_refusals(new))).wait_durable()

    def audit_refusals(self, new: Sequence[Refusal]) -> OnAppend:
        """Return an `on_append` callback that writes an audit record for each of these refusals."""
        records = [
            make_record(
                AuditKind.REFUSAL,
                self._context,
                Subject(server=refusal.server),
                at=self._store.now(),
                outcome=refusal.stage,
                reason=refusal.reason,
            )
            for refusal in new
        ]

        def on_append(tx: Tx) -> None:
            for record in records:
                self._audit.append(tx, record, self.mask)

        return on_append

    async def add_mode(self, mode: str) -> None:
        """Store the mode, for now and for when the session is resumed."""
        hold = self.hold

        def on_append(tx: Tx) -> None:
            stored = tx.session(hold.session_id)
            if stored is not None:
                tx.change(hold, SessionChange(settings={**stored.settings, "mode": mode}))

        await self.recover()
        await (await self.append(ModeChanged(mode=mode), on_append)).wait_durable()

    async def add_call(self, tool_call: ToolCall, *, title: str = "", kind: str = "other") -> None:
        """Append the request for a call, without waiting for the disk: later events of the call are stored after it."""
        await self.recover()
        arguments = tool_call.arguments
        whole = not is_over(arguments, STORED)
        event = ToolCalled(
            call_id=tool_call.call_id,
            server=tool_call.server,
            tool=tool_call.tool,
            arguments=_as_object(arguments) if whole else omit_arguments(arguments),
            title=title,
            kind=kind,
        )
        is_slow = whole and is_over(arguments, self._loop_budget)
        size = len(arguments) if whole else _SMALL
        self._running_calls[tool_call.call_id] = await self.append(event, size=size, is_slow=is_slow)

    async def mask_for_question(self, arguments: bytes) -> bytes:
        """The arguments of a call as a question shows them. Raise TOO_LARGE if they are too large to be shown."""
        if is_over(arguments, STORED):
            raise HoldfastError(codes.TOO_LARGE, f"The arguments have {len(arguments)} bytes.")
        if is_over(arguments, self._loop_budget):
            owner = self._context.session_id
            return await _MASK_THREADS.run(_mask_arguments, arguments, self.question_mask, owner=owner)
        return _mask_arguments(arguments, self.question_mask)

    async def add_decision(self, tool_call: ToolCall, decision: Decision) -> None:
        """Store the user's decision about a call, with its audit record."""
        record = replace(
            self._record(AuditKind.PERMISSION, tool_call, outcome=decision),
            arguments_hash=hash_arguments(tool_call.arguments),
        )
        event = PermissionDecided(call_id=tool_call.call_id, decision=decision)
        await run_to_completion(
            self._write_or_defer(_EventWrite(event, self._audit.append_callback(record, self.mask)))
        )

    async def add_start(self, tool_call: ToolCall) -> None:
        """Store that a call starts. When this returns, the call may run: a crash would leave a trace of it."""
        called = self._running_calls[tool_call.call_id]
        await (await self.append(ToolStarted(call_id=tool_call.call_id), depends_on=called)).wait_durable()

    async def add_end(self, tool_call: ToolCall, result: ToolResult, seconds: float) -> None:
        """Store the end of a call and its audit record, in one commit."""
        event = (
            await _MASK_THREADS.run(self._end_event, tool_call, result, owner=self._context.session_id)
            if result.is_over(self._loop_budget)
            else self._end_event(tool_call, result)
        )
        record = replace(
            self._record(AuditKind.CALL, tool_call, outcome=result.outcome, reason=result.code),
            duration_ms=round(seconds * 1000, 3),
            arguments_hash=hash_arguments(tool_call.arguments),
            arguments=self._audit_arguments(tool_call),
        )
        called = self._running_calls.get(tool_call.call_id)
        try:
            if called is not None and await called.wait_settled():
                on_append = self._audit.append_callback(record, self.mask)
                size = min(result.size, STORED.bytes)
                await self._write_or_defer(_EventWrite(event, on_append, size=size))
            else:  # the request was not stored, so the call was not made
                await self._audit.write(record, self.mask, self.hold)
        finally:
            self._running_calls.pop(tool_call.call_id, None)

    async def close(self, *last: tuple[Event, OnAppend | None]) -> None:
        """End the record with these events. If they cannot be stored now, the store writes them later."""
        pending = [_EventWrite(event, None) for event in self._message_masker.flush()]
        writes = [
            *pending,
            *(_EventWrite(mask_event(event, self.mask), on_append) for event, on_append in last),
        ]
        self._is_closed = True
        if self._turns:
            self._turns, self._is_interrupted = 0, True  # so that `recover` ends the running turn
        try:
            await self.recover()
            while writes:
                await self._write_durably(writes[0])
                del writes[0]
        except HoldfastError as error:
            log.warning("end of the session not stored yet", extra={"reason": error.message})
            with suppress(HoldfastError):
                await self._store.write(
                    lambda tx: self._write_in(tx, [*self._missing_end_writes(tx, set()), *writes]),
                    must_happen=True,
                )
        finally:
            self.events.close()

    async def _write_or_defer(self, write: "_EventWrite") -> None:
        """Store a decision about a call, or its end. If the disk is full or locked, the store writes it later."""
        try:
            await self.recover()
            await self._write_durably(write)
        except HoldfastError:
            late = replace(write, event=_without_result(write.event))
            last_seq = 0

            def write_late(tx: Tx) -> None:
                nonlocal last_seq
                last_seq = self._write_in(tx, [late])

            def publish() -> None:
                self.events.advance(last_seq)

            with suppress(HoldfastError):
                await self._store.write(write_late, must_happen=True, on_late=publish)
                publish()
            raise

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

    def _end_event(self, tool_call: ToolCall, result: ToolResult) -> Event:
        whole = not result.is_over(STORED)
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

    async def add_unknown_tool(self, tool_call: ToolCall, result: ToolResult) -> None:
        """Audit a call of a tool that this session does not have."""
        record = replace(
            self._record(AuditKind.DENIED, tool_call, outcome=result.code, reason=result.message),
            arguments_hash=hash_arguments(tool_call.arguments),
            arguments=self._audit_arguments(tool_call),
        )
        await run_to_completion(self._audit.write(record, self.mask, self.hold))

    def _record(self, kind: AuditKind, tool_call: ToolCall, *, outcome: str, reason: str = "") -> AuditRecord:
        at = self._store.now()
        return make_record(kind, self._context, _subject(tool_call), at=at, outcome=outcome, reason=reason)

    def _audit_arguments(self, tool_call: ToolCall) -> JsonObject | None:
        return limit_arguments(tool_call.arguments) if self._audit.keeps_arguments else None


@dataclass(slots=True)
class _EventWrite:
    """An event to store, and a callback that writes more in the same commit."""

    event: Event
    on_append: OnAppend | None
    origin: Origin = OWN_AGENT
    size: int = _SMALL


def _without_result(event: Event) -> Event:
    """The event without the tool's result: the caller got none, and the result may be what did not fit on the disk."""
    if isinstance(event, ToolEnded) and event.outcome is not Outcome.REFUSED:
        return ToolEnded(
            call_id=event.call_id, outcome=event.outcome, content=_RESULT_NOT_STORED, code=event.code
        )
    return event


def _shorten_block(block: BlockStart, mask: Mask) -> JsonObject:
    """The beginning of a text block, or the type of another block."""
    if block.type != "text":
        return {"type": "text", "text": f"({block.type}; too large to be kept)"}
    if len(block.text) <= _MAX_TEXT:
        return {"type": "text", "text": block.text}  # not the block: its other members may be large
    return {
        "type": "text",
        "text": f"{mask.mask_start(block.text, _MAX_TEXT)}… ({block.size} bytes; the rest was not kept)",
    }


def _text_size(event: Event) -> int:
    match event:
        case Replied(text=text) | Thought(text=text):
            return len(text)
        case Planned(entries=entries):
            return _SMALL * len(entries)
        case _:
            return _SMALL


def _is_slow_prompt(text: bytes, budget: Budget) -> bool:
    """Whether masking a prompt takes long. Each line of one with a `/call` is looked at."""
    return len(text) > _MAX_COMMANDS_ON_LOOP and (b"/call" in text or is_over(text, budget))


def _subject(tool_call: ToolCall) -> Subject:
    return Subject(server=tool_call.server, tool=tool_call.tool, call_id=tool_call.call_id)


def _mask_arguments(arguments: bytes, mask: Mask) -> bytes:
    value: Json = msgspec.json.decode(arguments)
    return msgspec.json.encode(mask.mask_known_in_json(value))


def _as_object(raw: bytes | msgspec.Raw) -> JsonObject:
    value: Json = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {"value": value}
