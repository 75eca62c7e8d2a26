"""Where a session is stored: its events, and the audit records about them."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from holdfast.audit.audit import Audit
from holdfast.host.ephemeral_store import EphemeralStore
from holdfast.masking.mask import Mask
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.resolution import Resolution
from holdfast.session.opening_events import OpeningEvents
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion
from holdfast.store.pending_event import settle_future
from holdfast.store.store import Store, Tx
from holdfast.store.types import Hold

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Acquired:
    """A session that this host holds."""

    hold: Hold
    stored_seq: int | None = None
    """The number of its last event, if its opening events are already stored."""


@dataclass(frozen=True, slots=True)
class SessionStorage:
    """The store of a session, and the audit of its calls."""

    store: Store
    audit: Audit

    def ephemeral(self) -> "SessionStorage":
        """Storage for one session that leaves nothing in this store but audit records."""
        store = EphemeralStore(self.audit)
        return SessionStorage(store, store.audit)

    def opening_events(
        self, context: SessionContext, resolution: Resolution, mask: Mask, *, is_new: bool
    ) -> OpeningEvents:
        return OpeningEvents(context, resolution, self.audit, mask, at=self.store.now(), is_new=is_new)

    async def acquire(self, work: Callable[[Tx], Acquired], undo: Callable[[Tx, Hold], None]) -> Acquired:
        """Run `work`, which acquires a session, in one transaction. If the caller is cancelled, `undo` reverses it."""
        written: asyncio.Future[Acquired] = asyncio.get_running_loop().create_future()
        self.store.submit(work, partial(settle_future, written))
        try:
            return await run_to_completion(written)
        except asyncio.CancelledError:
            if written.exception() is None:
                await run_to_completion(self.roll_back(lambda tx: undo(tx, written.result().hold)))
            raise

    async def release(self, record: Record) -> None:
        """Release the hold of a session, unless it was released with the last event."""
        if not record.is_released:
            await run_to_completion(self.store.release(record.hold))

    async def roll_back(self, undo: Callable[[Tx], None]) -> None:
        """Undo the writes of a failed attempt to open a session, now or as soon as the store can be written to."""
        try:
            await self.store.write(undo, must_happen=True)
        except HoldfastError as error:
            log.warning(
                "could not yet undo a failed attempt to open a session", extra={"reason": error.message}
            )
