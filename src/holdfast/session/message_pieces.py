"""Appends the messages and thoughts of agents, which arrive in pieces."""

from collections.abc import Iterator

from holdfast.masking.events import ENDS_OF_MESSAGES, MessageMasker
from holdfast.masking.mask import Mask
from holdfast.model.event import MAIN_AGENT_ORIGIN, Event, Origin, Replied, Thought
from holdfast.session.event_writer import EventWrite, EventWriter
from holdfast.store.pending_event import OnAppend, PendingEvent


class MessagePieces:
    """The messages of all agents of one session. The end of a piece is delayed while it may be the beginning of a known secret."""

    def __init__(self, writer: EventWriter, mask: Mask) -> None:
        self._writer = writer
        self._mask = mask
        self._maskers = {"": MessageMasker(mask)}
        """By the id of the agent; the session's own agent has the id ""."""
        self._origins = {"": MAIN_AGENT_ORIGIN}
        """The origin of the last piece of each of these agents."""

    def set_mask(self, mask: Mask) -> None:
        self._mask = mask
        for masker in self._maskers.values():
            masker.set_mask(mask)

    async def append_piece(self, event: Replied | Thought, origin: Origin = MAIN_AGENT_ORIGIN) -> None:
        """Append a piece of a message, except the end that is delayed."""
        self._writer.check_open()
        self._writer.check_quota()
        masker = self._maskers.get(origin.agent)
        self._origins[origin.agent] = origin
        if masker is None:
            masker = self._maskers[origin.agent] = MessageMasker(self._mask)
        for shown in masker.feed(event):
            await self._writer.queue(shown, origin=origin, size=len(shown.text))

    async def append(
        self, event: Event, on_append: OnAppend | None = None, *, origin: Origin, size: int
    ) -> PendingEvent:
        """Append a masked event. If it ends a message, append the delayed text of the message first."""
        self._writer.check_open()
        if self.has_delayed(origin) and isinstance(event, ENDS_OF_MESSAGES):
            await self._append_delayed(origin)
        return await self._writer.queue(event, on_append, origin=origin, size=size)

    def has_delayed(self, origin: Origin) -> bool:
        """Whether the end of a piece of this agent is delayed."""
        masker = self._maskers.get(origin.agent)
        return masker is not None and masker.has_delayed

    async def end_agent(self, origin: Origin) -> None:
        """Append the last text of a sub-agent that has ended."""
        if origin.agent and origin.agent in self._maskers:
            await self._append_delayed(origin)
            del self._maskers[origin.agent], self._origins[origin.agent]

    def flush(self) -> Iterator[EventWrite]:
        """The delayed text of all messages."""
        for agent, masker in self._maskers.items():
            for event in masker.flush():
                yield EventWrite(event, None, self._origins[agent])

    async def _append_delayed(self, origin: Origin) -> None:
        for event in self._maskers[origin.agent].flush():
            await self._writer.queue(event, origin=origin, size=len(event.text))
