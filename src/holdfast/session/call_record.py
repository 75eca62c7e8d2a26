"""The record of a session's calls: their events, and an audit record for each."""

from msgspec import structs

from holdfast.audit.record import (
    AuditKind,
    AuditRecord,
    Subject,
    arguments_to_store,
    make_record,
    size_of_arguments,
)
from holdfast.connect.call import BlockStart, ToolResult
from holdfast.masking.escapes import MAX_ENCODED_LENGTH
from holdfast.masking.events import mask_event
from holdfast.masking.mask import Mask
from holdfast.model.call import ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Decision,
    Event,
    PermissionDecided,
    ToolCalled,
    ToolEnded,
    ToolStarted,
)
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import SMALL_DOCUMENT_BYTES, STORED_LIMIT
from holdfast.session.event_writer import SHORT_EVENT_BYTES, EventWrite, EventWriter
from holdfast.session.message_pieces import MessagePieces
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.session_masks import SessionMasks
from holdfast.store.pending_event import OnAppend, PendingEvent
from holdfast.wire.strict_json import decode_json, exceeds_limit

_LARGE_EVENT_BYTES = 512 * 1024
"""A result that is masked in a thread counts as at least this large: a few bytes of JSON may be thousands of objects in memory."""
_RAW_SEARCH_BYTES = 4 * 1024
"""JSON up to this size is searched for secrets as text, which is faster than to search its decoded values. Longer JSON usually has
escapes, and must be decoded for the search anyway."""
_MAX_TEXT = 16 * 1024  # characters of each text block of a result that is stored shortened
_MAX_BLOCKS = 100  # content blocks of a result that is stored shortened
# Read once, because reading an enum member is slow in Python 3.11.
_CALL = AuditKind.CALL


class CallRecord:
    """Records the calls of one session: requested, decided about, started, ended."""

    def __init__(self, writer: EventWriter, masks: SessionMasks, messages: MessagePieces) -> None:
        self._writer = writer
        self._appender = writer.appender
        self._audit = writer.audit
        self._masks = masks
        self._messages = messages

    async def add_call(
        self, tool_call: ToolCall, *, decoded: Json = None, title: str = "", kind: str = "other"
    ) -> None:
        """Append the request for a call, without waiting for the disk.

        `decoded` is the arguments, or None if they are not decoded yet.
        """
        if self._writer.is_broken():
            await self._writer.recover()
        self._writer.check_open()
        self._writer.check_quota()
        arguments, size = tool_call.arguments, len(tool_call.arguments)
        if size <= SMALL_DOCUMENT_BYTES:
            event = self._call_event(tool_call, decoded, title, kind)
        elif exceeds_limit(arguments, STORED_LIMIT):
            event = self._call_event(tool_call, size_of_arguments(arguments), title, kind)
            size = SHORT_EVENT_BYTES
        elif exceeds_limit(arguments, self._masks.loop_limit):
            event = await self._masks.run_in_thread(self._call_event, tool_call, None, title, kind)
        else:
            event = self._call_event(tool_call, decoded, title, kind)
        origin = tool_call.origin
        if self._appender.can_append_now() and not self._messages.has_delayed(origin):
            # The request is committed together with the start or the end of the call.
            pending = self._appender.append_now(event, size=size, waits_for_next=True, origin=origin)
        else:
            pending = await self._messages.append(event, origin=origin, size=size)
        self._writer.running_calls[tool_call.call_id] = pending

    async def add_decision(self, tool_call: ToolCall, decision: Decision) -> None:
        """Store the user's decision about a call, with its audit record."""
        record = structs.replace(
            self._audit_record(AuditKind.PERMISSION, tool_call, outcome=decision),
            arguments_hash=self._audit.hash_arguments(tool_call.arguments),
        )
        event = PermissionDecided(call_id=tool_call.call_id, decision=decision)
        await run_to_completion(
            self._writer.write_or_postpone(
                EventWrite(event, self._audit.append_callback(record, self._masks.stored), tool_call.origin)
            )
        )

    async def add_start(self, tool_call: ToolCall) -> None:
        """Store that a call starts, before it is made, so that a crash leaves a trace of it."""
        self._writer.check_open()
        called = self._writer.running_calls[tool_call.call_id]
        started = ToolStarted(call_id=tool_call.call_id)
        if self._appender.can_append_now():
            pending = self._appender.append_now(
                started,
                depends_on=called,
                size=SHORT_EVENT_BYTES,
                waits_for_next=True,
                origin=tool_call.origin,
            )
        else:
            pending = await self._writer.queue(started, depends_on=called, origin=tool_call.origin)
        await pending.wait_durable()

    async def add_end(self, tool_call: ToolCall, result: ToolResult, seconds: float) -> None:
        """Store the end of a call and its audit record, in one commit, even if the caller is cancelled."""
        called, size = self._writer.running_calls.get(tool_call.call_id), result.size
        try:
            if (
                called is None
                or not called.is_durable
                or not self._appender.can_append_now()
                or self._writer.is_broken()
                or (size > SMALL_DOCUMENT_BYTES and result.exceeds(self._masks.loop_limit))
            ):
                await run_to_completion(self._add_end_in_task(tool_call, result, seconds, called))
            else:
                await self._add_end_at_once(tool_call, result, seconds, size)
        finally:
            self._writer.running_calls.pop(tool_call.call_id, None)

    async def _add_end_at_once(
        self, tool_call: ToolCall, result: ToolResult, seconds: float, size: int
    ) -> None:
        """Queue the end of a call at once, without a task, then wait until it is stored."""
        event = self._end_event(tool_call, result, size)
        on_append = self._audit_call_callback(tool_call, result, seconds)
        kept = min(size, STORED_LIMIT.bytes)
        origin = tool_call.origin
        pending = self._appender.append_now(event, on_append, size=kept, waits_for_next=True, origin=origin)
        try:
            await pending.wait_settled_despite_cancellation()
        finally:
            if isinstance(pending.error, HoldfastError):  # let the store write the end later
                write = EventWrite(pending.event, pending.on_append, origin, size=pending.size)
                await run_to_completion(self._writer.postpone(write))
        if pending.error is not None:
            raise pending.error

    async def _add_end_in_task(
        self, tool_call: ToolCall, result: ToolResult, seconds: float, called: PendingEvent | None
    ) -> None:
        size = result.size
        if result.exceeds(self._masks.loop_limit):
            event = await self._masks.run_in_thread(self._end_event, tool_call, result, size)
            size = max(size, _LARGE_EVENT_BYTES)
        else:
            event = self._end_event(tool_call, result, size)
        if called is not None and await called.wait_settled():
            on_append = self._audit_call_callback(tool_call, result, seconds)
            kept = min(size, STORED_LIMIT.bytes)
            write = EventWrite(event, on_append, tool_call.origin, size=kept)
            await self._writer.write_or_postpone(write)
        else:  # the request was not stored, so the call was not made
            record = self._end_record(tool_call, result, seconds)
            await self._audit.write(record, self._masks.stored, self._writer.hold)

    async def audit_call_without_events(self, tool_call: ToolCall, result: ToolResult) -> None:
        """Append an audit record of a call that was refused before any event of it was stored."""
        record = structs.replace(
            self._audit_record(AuditKind.DENIED, tool_call, outcome=result.code, reason=result.message),
            arguments_hash=self._audit.hash_arguments(tool_call.arguments),
            arguments=self._arguments_for_audit(tool_call),
        )
        await run_to_completion(self._audit.write(record, self._masks.stored, self._writer.hold))

    def _call_event(self, tool_call: ToolCall, decoded: Json, title: str, kind: str) -> Event:
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
        raw = tool_call.arguments
        return mask_event(event, self._masks.stored, raw if len(raw) <= _RAW_SEARCH_BYTES else None)

    def _end_event(self, tool_call: ToolCall, result: ToolResult, size: int) -> Event:
        whole = size <= SMALL_DOCUMENT_BYTES or not result.exceeds(STORED_LIMIT)
        event = ToolEnded(
            call_id=tool_call.call_id,
            outcome=result.outcome,
            content=tuple(
                result.content
                if whole
                else (
                    _shorten_block(block, self._masks.stored)
                    for block in result.first_blocks(_MAX_BLOCKS, _MAX_TEXT + MAX_ENCODED_LENGTH)
                )
            ),
            structured=result.data if whole else None,
            code=result.code,
        )
        return mask_event(
            event, self._masks.stored, result.raw_content if size <= _RAW_SEARCH_BYTES else None
        )

    def _audit_call_callback(self, tool_call: ToolCall, result: ToolResult, seconds: float) -> OnAppend:
        return self._audit.append_callback(self._end_record(tool_call, result, seconds), self._masks.stored)

    def _end_record(self, tool_call: ToolCall, result: ToolResult, seconds: float) -> AuditRecord:
        context = self._writer.context
        return AuditRecord(
            at=self._writer.store.now(),
            kind=_CALL,
            session_id=context.session_id,
            workspace_id=context.workspace_id,
            trust_level=context.trust_level,
            user_id=context.user_id or "",
            server=tool_call.server,
            tool=tool_call.tool,
            call_id=tool_call.call_id,
            outcome=result.outcome,
            reason=result.code,
            # To microseconds: faster than rounding to three digits.
            duration_ms=round(seconds * 1_000_000) / 1000,
            arguments_hash=self._audit.hash_arguments(tool_call.arguments),
            arguments=self._arguments_for_audit(tool_call),
        )

    def _audit_record(
        self, kind: AuditKind, tool_call: ToolCall, *, outcome: str, reason: str = ""
    ) -> AuditRecord:
        at = self._writer.store.now()
        return make_record(
            kind, self._writer.context, _subject(tool_call), at=at, outcome=outcome, reason=reason
        )

    def _arguments_for_audit(self, tool_call: ToolCall) -> JsonObject | None:
        return arguments_to_store(tool_call.arguments) if self._audit.keeps_arguments else None


def _shorten_block(block: BlockStart, mask: Mask) -> JsonObject:
    if block.type != "text":
        return {"type": "text", "text": f"({block.type}; too large to be kept)"}
    if len(block.text) <= _MAX_TEXT:
        return {"type": "text", "text": block.text}  # not the whole block: its other members may be large
    return {
        "type": "text",
        "text": f"{mask.mask_start(block.text, _MAX_TEXT)}… ({block.size} bytes; the rest was not kept)",
    }


def _subject(tool_call: ToolCall) -> Subject:
    return Subject(server=tool_call.server, tool=tool_call.tool, call_id=tool_call.call_id)
