"""The record of an open session: each event is masked, stored, then published."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import msgspec

from holdfast.audit.approvals import approval_record
from holdfast.audit.audit import Audit
from holdfast.masking.events import mask_event
from holdfast.masking.mask import Mask
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    MAIN_AGENT_ORIGIN,
    Event,
    MessageReceived,
    ModeChanged,
    Origin,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    Thought,
    ToolCalled,
)
from holdfast.model.limits import SizeLimit
from holdfast.model.resolution import Refusal
from holdfast.model.trust import Trust
from holdfast.session.call_record import CallRecord
from holdfast.session.event_writer import SHORT_EVENT_BYTES, EventWrite, EventWriter
from holdfast.session.message_pieces import MessagePieces
from holdfast.session.opening_events import refusal_records
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.session_masks import SessionMasks
from holdfast.session.subscription import EventFeed
from holdfast.store.pending_event import OnAppend, PendingEvent
from holdfast.store.store import ReadTx, Store, Tx
from holdfast.store.types import Approval, Hold, SessionChange, StoredEvent
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.strict_json import exceeds_limit

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHORT_PROMPT_BYTES = 4 * 1024
"""A prompt of up to this size is masked on the event loop."""
_NO_MASK = Mask()
_LIMITED = (Prompted, MessageReceived, Planned, ToolCalled)
"""A full session does not accept these events. It still accepts the ends of turns and calls."""


class Record:
    """The events of one session, in order, with their audit records. No event is published before it is durable."""

    def __init__(  # noqa: PLR0913 - all are used to store an event
        self,
        context: SessionContext,
        hold: Hold,
        store: Store,
        audit: Audit,
        mask: Mask,
        question_mask: Mask = _NO_MASK,
        *,
        throttle: LoopThrottle | None = None,
    ) -> None:
        """`throttle` is that of the session's quota owner. By default, the session is an owner of its own."""
        throttle = throttle or LoopThrottle(context.payer)
        self._session_id = context.session_id
        self.hold = hold
        """The right to write to the session."""
        self.events = EventFeed(hold.session_id, store)
        """Publishes the events, once they are stored."""
        self._store = store
        self._audit = audit
        self.masks = SessionMasks(throttle, mask, question_mask)
        self._writer = EventWriter(context, hold, store, audit, self.events, quota_owner=throttle.owner)
        self.messages = MessagePieces(self._writer, mask)
        self.calls = CallRecord(self._writer, self.masks, self.messages)
        self.is_released = False
        """Whether the hold was released with the last event."""

    @property
    def trust(self) -> Trust:
        return self._writer.context.trust_level

    @property
    def mask(self) -> Mask:
        return self.masks.stored

    def set_context(self, context: SessionContext) -> None:
        self._writer.context = context

    def set_masks(self, mask: Mask, question_mask: Mask) -> None:
        self.masks.stored, self.masks.questions = mask, question_mask
        self.messages.set_mask(mask)

    def limit_storage(self, max_megabytes: int, used_before: int) -> None:
        """Limit what the session may store; 0: no limit. `used_before` is what is stored already, in bytes."""
        self._writer.limit_storage(max_megabytes, used_before)

    async def read(self, work: Callable[[ReadTx], T]) -> T:
        return await self._store.read(work)

    async def write(self, work: Callable[[Tx], int]) -> int:
        """Write to the session's store after all events so far. `work` returns the number of the event that it appended, or 0."""
        await self.recover()
        self._writer.check_open()
        await self.flush()
        seq = await run_to_completion(self._store.write(work))
        self.events.advance(seq)
        return seq

    async def flush(self) -> None:
        """Wait until every event so far is durable and published. Raises if one could not be stored."""
        await self._writer.appender.flush()

    async def stored_events(self) -> AsyncIterator[StoredEvent]:
        await self.flush()
        async for event in self._store.events(self._session_id):
            yield event

    async def add(self, event: Event) -> None:
        """Append an event, and wait until it is durable."""
        await self.recover()
        await (await self.append(event)).wait_durable()

    async def add_together(self, *events: tuple[Event, OnAppend | None]) -> None:
        """Append events, normally in one commit, and wait until they are durable. If one fails, all later ones fail."""
        await self.recover()
        pending = [await self.append(event, on_append) for event, on_append in events]
        await pending[-1].wait_durable()  # the earlier ones are durable before it

    async def append(
        self, event: Event, on_append: OnAppend | None = None, *, origin: Origin = MAIN_AGENT_ORIGIN
    ) -> PendingEvent:
        """Append an event without waiting for the disk. A prompt that takes long to mask is masked in a thread."""
        self._writer.check_open()
        if isinstance(event, _LIMITED):
            self._writer.check_quota()
        text = msgspec.json.encode(event.blocks) if isinstance(event, Prompted) else b""
        if _is_slow_prompt(text, self.masks.loop_limit):
            masked = await self.masks.run_in_thread(mask_event, event, self.mask)
        else:
            masked = mask_event(event, self.mask)
        size = len(text) or _text_size(masked)
        return await self.messages.append(masked, on_append, origin=origin, size=size)

    def turn(self) -> AbstractAsyncContextManager[None]:
        return self._writer.turn()

    async def recover(self) -> None:
        await self._writer.recover()

    async def add_resolution(self, resolved: ServersResolved, new: Sequence[Refusal]) -> None:
        """Store which servers are available and which were refused, with an audit record of each new refusal, in one commit."""
        await self.recover()
        await (await self.append(resolved, self.audit_refusals_callback(new))).wait_durable()

    def audit_refusals_callback(self, new: Sequence[Refusal]) -> OnAppend:
        """A callback that writes an audit record for each of these refusals."""
        records = refusal_records(self._writer.context, new, at=self._store.now())
        return self._audit.append_all_callback(records, self.mask)

    async def add_mode(self, mode: str) -> None:
        """Store the mode. If the session is resumed, it has this mode again."""
        await self.recover()
        await (
            await self.append(ModeChanged(mode=mode), lambda tx: self._set(tx, "mode", mode))
        ).wait_durable()

    async def is_approved(self, key: str, content_hash: str) -> bool:
        approvals = await self._store.read(lambda tx: tx.approvals(key))
        return any(approval.key == key and approval.content_hash == content_hash for approval in approvals)

    async def approve(self, key: str, content_hash: str, *, by: str) -> None:
        """Store that a person approved this content, with its audit record."""
        approval = Approval(key=key, content_hash=content_hash, by=by, at=self._store.now())

        def store(tx: Tx) -> None:
            tx.approve(approval)
            self._audit.append(tx, approval_record(approval))

        await self._store.write(store)

    async def keep_setting(self, name: str, value: str) -> None:
        """Store a setting of the session, for when it is resumed."""
        self._writer.check_open()
        await self._store.write(lambda tx: self._set(tx, name, value))

    def _set(self, tx: Tx, name: str, value: str) -> None:
        stored = tx.session(self.hold.session_id)
        if stored is not None:
            tx.change(self.hold, SessionChange(settings={**stored.settings, name: value}))

    async def close(self, reason: str, *last: tuple[Event, OnAppend | None]) -> None:
        """Store these last events and the end of the session, and release the hold.

        If the events cannot be stored now, the store writes them later.
        """
        closed = mask_event(SessionClosed(reason=reason), self.mask)
        writes = [
            *self.messages.flush(),
            *(EventWrite(mask_event(event, self.mask), on_append) for event, on_append in last),
            EventWrite(closed, lambda tx: tx.release(self.hold)),
        ]
        try:
            await self._writer.close(writes)
            self.is_released = True
        except HoldfastError as error:
            log.warning("end of the session not stored yet", extra={"reason": error.message})
        finally:
            self.events.close()


def _text_size(event: Event) -> int:
    match event:
        case Replied(text=text) | Thought(text=text):
            return len(text)
        case Planned(entries=entries):
            return SHORT_EVENT_BYTES * len(entries)
        case _:
            return SHORT_EVENT_BYTES


def _is_slow_prompt(text: bytes, limit: SizeLimit) -> bool:
    """Whether a prompt takes long to mask: it exceeds the limit, or it is long and has `/call` commands, whose arguments are parsed."""
    return len(text) > _SHORT_PROMPT_BYTES and (b"/call" in text or exceeds_limit(text, limit))
