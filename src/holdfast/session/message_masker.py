"""Mask the messages and thoughts of an agent, which arrive in pieces."""

from collections.abc import Iterator
from dataclasses import replace

from holdfast.model.event import Prompted, Replied, SessionClosed, Thought, ToolCalled, TurnEnded
from holdfast.model.mask import Mask
from holdfast.model.stream_mask import StreamMask

ENDS_OF_MESSAGES = (Prompted, Replied, Thought, ToolCalled, TurnEnded, SessionClosed)
"""Before such an event, the delayed text of messages is appended."""


class MessageMasker:
    """Masks the pieces of one session's messages and thoughts as streams."""

    def __init__(self, mask: Mask) -> None:
        self._streams = {Replied: StreamMask(mask), Thought: StreamMask(mask)}
        self._mask = mask
        self._last: dict[type[Replied | Thought], Replied | Thought] = {}

    @property
    def has_pending(self) -> bool:
        """Whether the end of a piece is delayed."""
        return bool(self._last)

    def feed(self, piece: Replied | Thought) -> Iterator[Replied | Thought]:
        """The events to append now."""
        if not self._mask.size:
            yield piece
            return
        kind = type(piece)
        stream = self._streams[kind]
        last = self._last.pop(kind, None)
        if last is not None and last.message_id != piece.message_id and (pending := stream.flush()):
            yield replace(last, text=pending)
        if text := stream.feed(piece.text):
            yield piece if text == piece.text else replace(piece, text=text)
        if stream.pending:
            self._last[kind] = piece

    def flush(self) -> Iterator[Replied | Thought]:
        """The events with the delayed text, at the end of a message."""
        while self._last:
            kind, last = self._last.popitem()
            if pending := self._streams[kind].flush():
                yield replace(last, text=pending)
