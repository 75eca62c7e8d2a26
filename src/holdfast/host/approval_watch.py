"""End running servers that a new approval or revocation affects.

Servers whose approval was revoked are ended. Confined servers whose roots overlap with the folder of a newly approved program
are also ended, unless their entry has `writable: ["."]`: the next call starts them again, and then they cannot change that program.
"""

import asyncio
import logging
from typing import Self

from holdfast.audit.audit import Audit
from holdfast.connect.link_pool import LinkPool
from holdfast.host.edit_approvals import revoke_edit_approvals
from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import read_mounts, with_bind_mounts
from holdfast.model.server import ServerSpec, Source
from holdfast.resolve.approval_store import (
    approved_program_folders,
    is_entry_approved,
    read_edit_approvals,
)
from holdfast.resolve.unconfined_paths import UnconfinedPaths
from holdfast.store.store import ReadTx, Store
from holdfast.store.types import Approval

log = logging.getLogger(__name__)

_CHECK_SECONDS = 5.0
"""How often the approvals that other processes stored are checked."""


class ApprovalWatch:
    """Compares the running servers of one host with the stored approvals."""

    def __init__(self, store: Store, audit: Audit, links: LinkPool) -> None:
        self._store = store
        self._audit = audit
        self._links = links
        self._folders: frozenset[str] = frozenset()
        """The folders of the approved programs at the last check."""
        self._followed: frozenset[Approval] = frozenset()
        """The approvals of later edits at the last check."""

    async def start(self) -> Self:
        """Read the approvals, and return this watch. Call this before the first server is started, so that no later change is missed."""
        self._folders, followed = await self._store.read(
            lambda tx: (approved_program_folders(tx), read_edit_approvals(tx))
        )
        self._followed = frozenset(followed)
        return self

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                await self.check()
            except HoldfastError as error:  # the store may be busy for a while
                log.warning("could not check the approvals", extra={"reason": error.message})

    async def check(self) -> None:
        """End the servers that the approvals and revocations since the last check affect."""
        project = [spec for spec in self._links.specs() if spec.source is Source.PROJECT]

        def read(tx: ReadTx) -> tuple[frozenset[str], list[ServerSpec], frozenset[Approval]]:
            revoked = [spec for spec in project if not is_entry_approved(tx, spec)]
            return approved_program_folders(tx), revoked, frozenset(read_edit_approvals(tx))

        folders, revoked, followed = await self._store.read(read)
        await self._revoke_new_edit_approvals(followed - self._followed)
        self._followed = followed
        new, self._folders = folders - self._folders, folders
        if not new and not revoked:
            return
        approved = UnconfinedPaths(approved_folders=frozenset(with_bind_mounts(new, read_mounts())))

        def is_affected(spec: ServerSpec) -> bool:
            confinement = spec.confinement
            if spec in revoked or confinement is None:
                return spec in revoked
            return "." not in confinement.writable and bool(approved.read_only_roots(confinement.roots))

        ended = [spec.name for spec in self._links.specs() if is_affected(spec)]
        if ended:
            log.info("servers ended, because approvals have changed", extra={"servers": ended})
            await self._links.close_matching(is_affected)

    async def _revoke_new_edit_approvals(self, new: frozenset[Approval]) -> None:
        """Revoke new approvals of later edits in folders that a running confined server can write to."""
        for spec in self._links.specs() if new else ():
            await revoke_edit_approvals(self._store, self._audit, new, spec)
