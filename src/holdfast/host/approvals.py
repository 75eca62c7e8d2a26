"""Approvals of servers (by their configuration) and of tools (by their definition)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from holdfast.model.server import ServerSpec, Source
from holdfast.resolve.approval_keys import (
    APPROVED_ON_FIRST_USE,
    approved_fingerprints,
    server_approval_key,
    store_tool_approvals,
    tool_key_prefix,
)
from holdfast.resolve.screen_tools import ScreenedTools, screen_tools_async
from holdfast.resolve.server_entry import ServerEntry
from holdfast.store.store import Store
from holdfast.store.types import Approval
from holdfast.wire.mcp.tools import Tool


class Approvals:
    """Stores approvals, and screens tools against them."""

    def __init__(self, store: Store, *, pin_tools: str) -> None:
        self._store = store
        self._pin_tools = pin_tools

    async def approve_server(self, entry: ServerEntry, *, by: str) -> None:
        """Approve a server with its current configuration."""
        approval = Approval(
            key=server_approval_key(entry), content_hash=entry.digest, by=by, at=datetime.now(UTC)
        )
        await self._store.write(lambda tx: tx.approve(approval))

    async def approve_tools(self, spec: ServerSpec, fingerprints: Mapping[str, str], *, by: str) -> None:
        """Approve tools with their current definitions, given as fingerprints by tool name."""
        now = datetime.now(UTC)
        await self._store.write(lambda tx: store_tool_approvals(tx, spec, fingerprints, by=by, at=now))

    async def screen(self, spec: ServerSpec, tools: Sequence[Tool]) -> ScreenedTools:
        """Offer the tools whose definition has not changed since first use or since its last approval."""
        trusted = (Source.HOST, Source.USER) if self._pin_tools == "project" else ()
        if spec.source is Source.BUILTIN or spec.source in trusted:
            return await screen_tools_async(tools, None)
        approvals = await self._store.read(lambda tx: tx.approvals(tool_key_prefix(spec)))
        pinned = approved_fingerprints(spec, approvals)
        screened = await screen_tools_async(tools, pinned)
        if pinned is None:
            await self.approve_tools(spec, screened.fingerprints, by=APPROVED_ON_FIRST_USE)
        return screened
