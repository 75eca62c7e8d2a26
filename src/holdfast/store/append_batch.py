"""Appends the queued events of one commit in one transaction, then passes the new ones to the feed."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from holdfast.model.event import Origin
from holdfast.store.constraints import default_key
from holdfast.store.pending_event import PendingEvent
from holdfast.store.projection import EVENTS_WITHOUT_PROJECTION
from holdfast.store.types import AppendResult, Hold, StoredEvent

if TYPE_CHECKING:
    from holdfast.store.store import Tx

# Above this number of rows, one statement for all rows is faster than a statement for each.
_MAX_ONE_BY_ONE = 4


class AppendBatch:
    """The events of one transaction, appended with `Tx.append_many` if that is possible and faster, else one by one."""

    __slots__ = ("_hold", "entries", "stored_count", "uses_append_many")

    def __init__(self, hold: Hold, entries: list[PendingEvent], *, one_by_one: bool = False) -> None:
        self._hold = hold
        self.entries = entries
        self.uses_append_many = (
            not one_by_one and len(entries) > _MAX_ONE_BY_ONE and all(map(_can_batch, entries))
        )
        self.stored_count = 0
        """How many events `append_to` has appended one by one: if appending one failed, this is the index of that event."""

    def append_to(self, tx: "Tx") -> list[AppendResult]:
        """Append the events. The store may call this again after a rollback."""
        if self.uses_append_many:
            batches = groupby(self.entries, key=_origin)
            return [
                result
                for origin, entries in batches
                for result in tx.append_many(self._hold, [entry.event for entry in entries], origin)
            ]
        self.stored_count = 0
        results: list[AppendResult] = []
        hold = self._hold
        for entry in self.entries:
            appended = tx.append(hold, entry.event, entry.key, entry.origin)
            if appended.is_new and entry.on_append is not None:
                entry.on_append(tx)
            results.append(appended)
            self.stored_count += 1
        return results


class Feed(Protocol):
    """Receives the events of each commit after the commit."""

    subscription_count: int
    """After a commit, `publish` is called if there are subscriptions, else `advance`."""

    def publish(self, events: Sequence[StoredEvent], sizes: Sequence[int]) -> None:
        """Receive the new events of a commit, in order, and their sizes. Events that were stored before are left out."""
        ...

    def advance(self, seq: int) -> None:
        """Remember that the events up to this number are stored."""
        ...


def publish(feed: Feed, entries: list[PendingEvent], results: list[AppendResult]) -> None:
    """Pass the new events of a commit to the feed."""
    events: list[StoredEvent] = []
    sizes: list[int] = []
    for entry, result in zip(entries, results, strict=True):
        if result.is_new:
            origin = entry.origin
            events.append(
                StoredEvent(
                    seq=result.seq,
                    at_microseconds=result.at_microseconds,
                    event=entry.event,
                    key=entry.key or default_key(entry.event),
                    agent=origin.agent,
                    parent_call=origin.parent_call,
                    cause=origin.cause,
                )
            )
            sizes.append(entry.size)
    feed.publish(events, sizes)


def _origin(entry: PendingEvent) -> Origin:
    return entry.origin


def _can_batch(entry: PendingEvent) -> bool:
    event = entry.event
    return (
        entry.key is None
        and entry.on_append is None
        and isinstance(event, EVENTS_WITHOUT_PROJECTION)
        and default_key(event) is None
    )
