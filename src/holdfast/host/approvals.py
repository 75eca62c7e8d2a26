"""Approvals: of servers as they are configured, and of tools as their servers describe them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from holdfast.model.server import ServerSpec, Source
from holdfast.resolve.approvals import (
    FIRST_USE,
    approve_tools,
    approved_fingerprints,
    server_subject,
    tool_subject_prefix,
)
from holdfast.resolve.load import ServerEntry
from holdfast.resolve.screen import ScreenedTools, screen_tools_async
from holdfast.store.rows import Approval
from holdfast.store.store import Store
from holdfast.wire.mcp.tools import Tool


class Approvals:
    """Stores approvals, and screens tools by them."""

    def __init__(self, store: Store, *, pin_tools: str) -> None:
        self._store = store
        self._pin_tools = pin_tools

    async def approve_server(self, entry: ServerEntry, *, by: str) -> None:
        """Approve a server as it is configured now."""
        approval = Approval(
            what=server_subject(entry), content_hash=entry.digest, by=by, at=datetime.now(UTC)
        )
        await self._store.write(lambda tx: tx.approve(approval))

    async def approve_tools(self, spec: ServerSpec, fingerprints: Mapping[str, str], *, by: str) -> None:
        """Approve tools as they are described now."""
        now = datetime.now(UTC)
        await self._store.write(lambda tx: approve_tools(tx, spec, fingerprints, by=by, at=now))

    async def screen(self, spec: ServerSpec, tools: Sequence[Tool]) -> ScreenedTools:
        """Offer the tools that are as they were when the server was first used, or as approved since."""
        trusted = (Source.HOST, Source.USER) if self._pin_tools == "project" else ()
        if spec.source is Source.BUILTIN or spec.source in trusted:
            return await screen_tools_async(tools, None)
        approvals = await self._store.read(lambda tx: tx.approvals(tool_subject_prefix(spec)))
        pinned = approved_fingerprints(spec, approvals)
        screened = await screen_tools_async(tools, pinned)
        if pinned is None:
            await self.approve_tools(spec, screened.fingerprints, by=FIRST_USE)
        return screened
