"""Messages between sessions: those that this session sends, and those that it receives."""

from collections.abc import Sequence

from holdfast.masking.events import mask_event
from holdfast.model.event import MAIN_AGENT_ORIGIN, MessageReceived, MessageSent, Origin
from holdfast.model.ids import SessionId, new_message_id
from holdfast.model.json import JsonObject
from holdfast.model.message_text import mark_message
from holdfast.session.record import Record
from holdfast.store.pending_event import OnAppend
from holdfast.store.store import Tx
from holdfast.store.types import InboxMessage

_BATCH = 100  # messages that one turn delivers at most


class Mailbox:
    """Sends the messages of one open session to other sessions, and delivers the messages that it receives."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.may_have_messages = True
        """Whether messages may wait to be delivered. False once all of them are delivered."""

    async def send(
        self, target: SessionId, text: str, *, title: str, origin: Origin = MAIN_AGENT_ORIGIN
    ) -> str | None:
        """Store a message to another session and its `MessageSent` event, in one commit. Return the message's id.

        Return None if this session may not send to the target, or if too many messages wait for the target.
        """
        record, message_id = self._record, new_message_id()
        event = mask_event(MessageSent(message_id=message_id, target=target, text=text), record.mask)
        assert isinstance(event, MessageSent)
        message = InboxMessage(
            message_id=message_id,
            sender=record.hold.session_id,
            sender_title=record.mask.mask_known(title),
            target=target,
            text=event.text,
        )

        def write(tx: Tx) -> int:
            if not tx.send(record.hold, message):
                return 0
            return tx.append(record.hold, event, origin=origin).seq

        seq = await record.write(write)
        return message_id if seq else None

    async def deliver(self, turn_id: str) -> tuple[InboxMessage, ...]:
        """Deliver the waiting messages, at most `_BATCH`: store them as events of this turn, and return them."""
        if not self.may_have_messages:
            return ()
        self.may_have_messages = False
        try:
            record = self._record
            waiting = await record.read(lambda tx: tx.inbox(record.hold.session_id, limit=_BATCH))
            for message in waiting:
                pending = await record.append(
                    _received(message, turn_id), _delivered_callback(record, message.message_id)
                )
                await pending.wait_durable()
        except BaseException:
            self.may_have_messages = True
            raise
        if len(waiting) >= _BATCH:
            self.may_have_messages = True
        return waiting


def _received(message: InboxMessage, turn_id: str) -> MessageReceived:
    return MessageReceived(
        turn_id=turn_id,
        message_id=message.message_id,
        sender=message.sender,
        sender_title=message.sender_title,
        text=message.text,
    )


def _delivered_callback(record: Record, message_id: str) -> OnAppend:
    def deliver(tx: Tx) -> None:
        tx.deliver(record.hold, message_id)

    return deliver


def message_blocks(messages: Sequence[InboxMessage]) -> list[JsonObject]:
    """The messages as the content blocks of a prompt."""
    return [{"type": "text", "text": mark_message(message)} for message in messages]
