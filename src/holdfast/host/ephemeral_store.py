"""The store of a session that is not kept: its events stay in memory, but its audit records go to the host's store."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditRecord
from holdfast.masking.mask import Mask
from holdfast.model.errors import HoldfastError
from holdfast.store.memory import MemoryStore
from holdfast.store.store import OnDone, Tx
from holdfast.store.types import Hold

T = TypeVar("T")


class EphemeralStore(MemoryStore):
    """The events of one session, in memory. Use it with its own `audit`, which forwards to the host's audit."""

    def __init__(self, host_audit: Audit) -> None:
        super().__init__()
        self.audit = ForwardingAudit(self, host_audit)
        self._reporting: set[asyncio.Task[None]] = set()

    async def write(
        self,
        work: Callable[[Tx], T],
        *,
        must_happen: bool = False,
        on_postponed_done: Callable[[], object] | None = None,
    ) -> T:
        """Run a function that changes the events. Return when the audit records that it appended are on disk."""
        self.audit.discard()
        result = await super().write(work)
        if self.audit.has_collected:
            await self.audit.forward()
        return result

    def submit(
        self, work: Callable[[Tx], Any], on_done: OnDone, *, quota_owner: str = "", size: int = 0
    ) -> None:
        """Like `write`, but return at once, and call `on_done` when the audit records are on disk."""

        def on_written(result: Any, error: BaseException | None) -> None:
            if error is not None or not self.audit.has_collected:
                on_done(result, error)
                return
            task = asyncio.get_running_loop().create_task(self._forward_and_report(result, on_done))
            self._reporting.add(task)
            task.add_done_callback(self._reporting.discard)

        self.audit.discard()
        super().submit(work, on_written)

    async def _forward_and_report(self, result: Any, on_done: OnDone) -> None:
        try:
            await self.audit.forward()
        except HoldfastError as error:
            on_done(None, error)
        else:
            on_done(result, None)


class ForwardingAudit(Audit):
    """Collects the records of a transaction of an `EphemeralStore`, then writes them to the host's audit."""

    def __init__(self, store: MemoryStore, host_audit: Audit) -> None:
        super().__init__(
            store, keep_arguments=host_audit.keeps_arguments, hash_arguments=host_audit.hash_arguments
        )
        self._host_audit = host_audit
        self._collected: list[tuple[AuditRecord, Mask | None]] = []

    @property
    def has_collected(self) -> bool:
        """Whether the last transaction appended a record."""
        return bool(self._collected)

    def append(self, tx: Tx, record: AuditRecord, mask: Mask | None = None) -> int:
        """Collect a record. Its number in the chain is not known yet, so this returns 0."""
        self._collected.append((record, mask))
        return 0

    async def write(self, record: AuditRecord, mask: Mask | None = None, hold: Hold | None = None) -> int:
        """Write a record to the host's audit. No other process can take over the session, so the hold is not checked."""
        return await self._host_audit.write(record, mask)

    def discard(self) -> None:
        """Forget the records that are left of a transaction that was rolled back."""
        self._collected.clear()

    async def forward(self) -> None:
        """Write the collected records to the host's audit, and wait until they are on disk."""
        collected, self._collected = self._collected, []
        last_error: HoldfastError | None = None
        for record, mask in collected:
            try:
                await self._host_audit.write(record, mask)
            except HoldfastError as error:  # the host's store writes the record later, if it can
                last_error = error
        if last_error is not None:
            raise last_error
