"""The events that are stored when a session is opened: that it was opened, and which servers were refused."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, AuditRecord, Subject, make_record
from holdfast.masking.events import mask_event
from holdfast.masking.mask import Mask
from holdfast.model.context import SessionContext
from holdfast.model.event import Event, ServersResolved, SessionOpened
from holdfast.model.resolution import Refusal, Resolution
from holdfast.store.pending_event import OnAppend
from holdfast.store.store import Tx
from holdfast.store.types import Hold


class OpeningEvents:
    """The events of one opening, with the audit records of the refusals."""

    def __init__(
        self,
        context: SessionContext,
        resolution: Resolution,
        audit: Audit,
        mask: Mask,
        *,
        at: datetime,
        is_new: bool,
    ) -> None:
        opened = SessionOpened(cwd=context.cwd, roots=context.roots, trust_level=context.trust_level)
        self.resolved: ServersResolved | None = None
        """The state of the servers before any has started. None if there are servers to start and none was refused."""
        self.events: list[tuple[Event, OnAppend | None]] = [(opened, None)]
        """Each event, not masked yet, with what to write in the same commit."""
        self._mask = mask
        if resolution.refusals or not resolution.servers:
            self.resolved = ServersResolved(servers=(), refusals=resolution.refusals)
        # A new session has no servers in the store until an event lists them, so without refusals it needs no event.
        if self.resolved is not None and (resolution.refusals or not is_new):
            records = refusal_records(context, resolution.refusals, at=at)
            self.events.append((self.resolved, audit.append_all_callback(records, mask)))

    def write(self, tx: Tx, hold: Hold) -> int:
        """Mask the events and append them in this transaction. Return the number of the last one."""
        seq = 0
        for event, on_append in self.events:
            seq = tx.append(hold, mask_event(event, self._mask)).seq
            if on_append is not None:
                on_append(tx)
        return seq


def refusal_records(
    context: SessionContext, refusals: Sequence[Refusal], *, at: datetime
) -> list[AuditRecord]:
    """The audit records of refused servers."""
    return [
        make_record(
            AuditKind.REFUSAL,
            context,
            Subject(server=refusal.server),
            at=at,
            outcome=refusal.stage,
            reason=refusal.reason,
        )
        for refusal in refusals
    ]
