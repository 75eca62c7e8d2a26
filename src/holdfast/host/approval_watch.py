"""End running servers that an approval, a revocation, or a change of the lists of servers affects.

Servers whose approval was revoked are ended. Confined servers are also ended if they can change what runs unconfined now: a program
that was approved, or that a list of servers names, since they were started. The next call starts them again, and then they cannot
change it. Servers whose entry has `writable: ["."]` are not ended.
"""

import asyncio
import logging
from typing import Self

from holdfast.audit.audit import Audit
from holdfast.connect.link_pool import LinkPool
from holdfast.host.edit_approvals import revoke_edit_approvals
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.errors import HoldfastError
from holdfast.model.process import Confinement
from holdfast.model.server import ServerSpec, Source
from holdfast.resolve.approval_store import is_entry_approved, read_edit_approvals
from holdfast.resolve.unconfined_paths import UnconfinedPathFinder, UnconfinedPaths
from holdfast.store.store import ReadTx, Store
from holdfast.store.types import Approval

log = logging.getLogger(__name__)

_CHECK_SECONDS = 5.0
"""How often the approvals that other processes stored, and the lists of servers, are checked."""


class ApprovalWatch:
    """Compares the running servers of one host with the stored approvals, and with the lists of servers."""

    def __init__(
        self,
        store: Store,
        audit: Audit,
        links: LinkPool,
        confined_folders: ConfinedFolders,
        unconfined_paths: UnconfinedPathFinder,
    ) -> None:
        self._store = store
        self._audit = audit
        self._links = links
        self._confined_folders = confined_folders
        self._unconfined_paths = unconfined_paths
        self._followed: frozenset[Approval] = frozenset()
        """At the last check: the approvals that cover later edits of a program."""

    async def start(self) -> Self:
        """Read the approvals, and return this watch. Call this before the first server is started, so that no later change is missed."""
        self._followed = frozenset(await self._store.read(read_edit_approvals))
        return self

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                await self.end_affected_servers()
            except HoldfastError as error:  # the store may be busy for a while
                log.warning("could not check the approvals", extra={"reason": error.message})

    async def end_affected_servers(self) -> None:
        """End the servers that the approvals and revocations since the last check affect."""
        project = [spec for spec in self._links.specs() if spec.source is Source.PROJECT]

        def read(tx: ReadTx) -> tuple[list[ServerSpec], frozenset[Approval]]:
            revoked = [spec for spec in project if not is_entry_approved(tx, spec)]
            return revoked, frozenset(read_edit_approvals(tx))

        revoked, followed = await self._store.read(read)
        await self._revoke_new_edit_approvals(followed - self._followed)
        self._followed = followed
        running = [each for each in self._confined_folders.confinements if "." not in each.writable]
        unconfined = await self._unconfined_paths.find() if running else UnconfinedPaths()
        outdated = {each.roots for each in running if _can_change_more(each, unconfined)}
        if not outdated and not revoked:
            return

        def is_affected(spec: ServerSpec) -> bool:
            confinement = spec.confinement
            if spec in revoked or confinement is None:
                return spec in revoked
            return "." not in confinement.writable and confinement.roots in outdated

        ended = [spec.name for spec in self._links.specs() if is_affected(spec)]
        if ended:
            log.info("servers ended, because what runs unconfined has changed", extra={"servers": ended})
            await self._links.close_matching(is_affected)

    async def _revoke_new_edit_approvals(self, new: frozenset[Approval]) -> None:
        """Revoke those of these approvals whose folder a running confined server can write to."""
        for spec in self._links.specs() if new else ():
            await revoke_edit_approvals(self._store, self._audit, new, spec)


def _can_change_more(confinement: Confinement, unconfined: UnconfinedPaths) -> bool:
    """Whether a running server can change something that runs unconfined now, but did not when the server was started."""
    read_only = {*unconfined.read_only_roots(confinement.roots)}
    executed = {*unconfined.programs_in(confinement.roots)}
    return not (read_only <= {*confinement.read_only} and executed <= {*confinement.executed})
