"""The only writer of a session: store, then tell."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, Subject, hash_arguments, record
from holdfast.connect.call import Answer
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.event import Event, ServersResolved, ToolCalled, ToolEnded
from holdfast.model.json import Json, JsonObject
from holdfast.model.mask import Mask
from holdfast.model.resolution import Refusal
from holdfast.store.appender import Also
from holdfast.store.store import Store, Tx


class Record:
    """What happens in one session, in order. An event is told to nobody before it is on disk."""

    def __init__(self, context: SessionContext, store: Store, audit: Audit, mask: Mask) -> None:
        self._context = context
        self._audit = audit
        self._mask = mask
        self._appender = store.appender(context.session_id, mask=mask)

    async def add(self, event: Event) -> None:
        """Add an event; returns when it is durable."""
        await (await self._appender.append(event)).durable()

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
                self._audit.add(tx, note, self._mask)

        event = ServersResolved(servers=tuple(servers), refusals=tuple(refusals))
        await (await self._appender.append(event, also=also)).durable()

    async def called(self, asked: ToolCall) -> None:
        """A call begins. Nobody waits for this: what comes of it is stored after it, in order."""
        arguments = _object(asked.arguments)
        await self._appender.append(
            ToolCalled(call_id=asked.call_id, server=asked.server, tool=asked.tool, arguments=arguments)
        )

    async def ended(self, asked: ToolCall, answer: Answer, seconds: float) -> None:
        """A call is over; returns when its event and its audit are durable, in one commit."""
        event = ToolEnded(
            call_id=asked.call_id,
            outcome=answer.outcome,
            content=tuple(_object(block) for block in answer.result.content),
            structured=answer.data,
            code=answer.code,
        )
        await (
            await self._appender.append(event, also=self._audited(AuditKind.CALL, asked, answer, seconds))
        ).durable()

    async def denied(self, asked: ToolCall, answer: Answer) -> None:
        """Something was asked for that this session does not have."""
        note = replace(
            record(
                AuditKind.DENIED, self._context, _subject(asked), outcome=answer.code, reason=answer.message
            ),
            arguments_hash=hash_arguments(asked.arguments),
        )
        await self._audit.record(note, self._mask)

    async def flush(self) -> None:
        """Wait until all of it is on disk."""
        await self._appender.flush()

    def _audited(self, kind: AuditKind, asked: ToolCall, answer: Answer, seconds: float) -> Also:
        note = replace(
            record(kind, self._context, _subject(asked), outcome=answer.outcome, reason=answer.code),
            duration_ms=round(seconds * 1000, 3),
            arguments_hash=hash_arguments(asked.arguments),
        )
        return self._audit.adds(note, self._mask)


def _subject(asked: ToolCall) -> Subject:
    return Subject(server=asked.server, tool=asked.tool, call_id=asked.call_id)


def _object(raw: bytes | msgspec.Raw) -> JsonObject:
    value: Json = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {"value": value}
