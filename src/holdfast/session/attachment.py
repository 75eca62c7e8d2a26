"""A door's attachment to a live session. Through it, the door gets events and sends prompts."""

from collections.abc import Sequence

from holdfast.model.ids import new_message_id
from holdfast.model.json import JsonObject
from holdfast.session.doors import AttachedDoor, Doors
from holdfast.session.subscription import EventFeed, Subscription
from holdfast.session.turns import BeforeTurn, Prompt, TurnResult, Turns


class Attachment:
    """A door's attachment to a session. Several doors can be attached; each sees all events."""

    def __init__(self, attached: AttachedDoor, doors: Doors, events: EventFeed, turns: Turns) -> None:
        self._attached = attached
        self._doors = doors
        self._events = events
        self._turns = turns

    @property
    def may_answer(self) -> bool:
        return self._attached.may_answer

    def subscribe(self, after: int = 0) -> Subscription:
        """Subscribe to the events after this number. Prompts that this door sends from now on are left out.

        A question to the door waits until the reader has handled all events before it.
        """
        subscription = self._events.subscribe(after)
        self._attached.add(subscription)
        return subscription

    async def prompt(
        self, blocks: Sequence[JsonObject], *, before: BeforeTurn | None = None, is_cancelled: bool = False
    ) -> TurnResult:
        """Run one turn, after the prompts that are already waiting. Return when its last event is stored.

        `before` runs at the beginning of the turn, before the agent. With `is_cancelled`, the prompt is stored but not answered.
        """
        message_id = new_message_id()
        for subscription in self._attached.subscriptions:
            subscription.hide_prompt(message_id)
        prompt = Prompt(blocks=blocks, message_id=message_id, before=before, is_cancelled=is_cancelled)
        return await self._turns.run(prompt, sender=self._attached)

    def cancel(self) -> None:
        """Cancel the running turn, and the waiting prompts of this door and of doors that have left."""
        self._turns.cancel(sender=self._attached)

    def detach(self) -> int:
        """Detach the door; it gets no more questions. Return how many doors are left that may answer.

        The door's subscriptions continue until they or the session are closed.
        """
        self._doors.detach(self._attached)
        return self._doors.answering_count
