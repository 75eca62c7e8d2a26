"""The stored state of a session's servers: which are available, and which were refused."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from holdfast.model.event import ServersResolved
from holdfast.model.resolution import Refusal
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion
from holdfast.store.pending_event import OnAppend


class StoredResolution:
    """Stores the state of one session's servers when it changes. Each refusal gets one audit record."""

    def __init__(self, record: Record, read_state: Callable[[], ServersResolved]) -> None:
        self._record = record
        self._read_state = read_state
        self._refusals: list[Refusal] = []  # the refusals that are stored
        self._last: ServersResolved | None = None  # the last state that was stored
        self._store_lock = asyncio.Lock()

    def set_stored(self, resolved: ServersResolved) -> None:
        """Note that this state is stored."""
        self._refusals = [*resolved.refusals]
        self._last = resolved

    def forget_refusals(self) -> None:
        """Forget which refusals are stored, so that those of a new resolution are stored again."""
        self._refusals = []

    async def refusals(self) -> tuple[Refusal, ...]:
        async with self._store_lock:
            return tuple(self._refusals)

    async def store(self, *, only_new_refusals: bool = False) -> None:
        """Store the state of the servers if it has changed; with `only_new_refusals`, only if a server was newly refused."""
        if not self._store_lock.locked() and self._has_nothing_to_store(
            *self._unstored(), only_new_refusals=only_new_refusals
        ):
            return
        # Finish even if the caller is cancelled, because `_refusals` must match what is stored.
        await run_to_completion(self._store(only_new_refusals=only_new_refusals))

    async def unstored_event(self) -> tuple[ServersResolved, OnAppend] | None:
        """The event to store when the session is closed; None if nothing has changed."""
        async with self._store_lock:
            resolved, new = self._unstored()
            if self._has_nothing_to_store(resolved, new):
                return None
            return resolved, self._record.audit_refusals_callback(new)

    async def _store(self, *, only_new_refusals: bool) -> None:
        async with self._store_lock:
            resolved, new = self._unstored()
            if self._has_nothing_to_store(resolved, new, only_new_refusals=only_new_refusals):
                return
            await self._record.add_resolution(resolved, new)
            self._refusals += new
            self._last = resolved

    def _has_nothing_to_store(
        self, resolved: ServersResolved, new: Sequence[Refusal], *, only_new_refusals: bool = False
    ) -> bool:
        return not new and (only_new_refusals or resolved == self._last)

    def _unstored(self) -> tuple[ServersResolved, list[Refusal]]:
        """The current state of the servers, and the refusals in it that are not stored yet."""
        resolved = self._read_state()
        return resolved, _new_refusals(resolved.refusals, self._refusals)


def _new_refusals(refusals: Sequence[Refusal], stored: Sequence[Refusal]) -> list[Refusal]:
    known = Counter(stored)
    new: list[Refusal] = []
    for refusal in refusals:
        if known[refusal]:
            known[refusal] -= 1
        else:
            new.append(refusal)
    return new
