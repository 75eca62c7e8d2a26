"""What every command about sessions has in common: the store, and a session in words."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import Audit
from holdfast.cli.place import database
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.store import clock
from holdfast.store.lease import is_interrupted
from holdfast.store.rows import StoredSession
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store

T = TypeVar("T")

SHORT = 13
"""As much of an id as is shown in lists: enough to tell sessions apart."""


def with_store(path: Path | None, work: Callable[[Store, Audit], Coroutine[Any, Any, T]]) -> T:
    """Run something that changes what is kept; what it is about was found by looking before."""
    file = database(path)
    if not file.is_file():
        raise HoldfastError(codes.STORE_UNREADABLE, f"There is no store at '{file}'.")

    async def run() -> T:
        async with SqliteStore(file) as store, Audit(store, FileAnchor.beside(file)) as audit:
            return await work(store, audit)

    return asyncio.run(run())


def for_programs(stored: StoredSession) -> JsonObject:
    """A session as JSON."""
    context = stored.context
    return {
        "id": context.session_id,
        "title": stored.title,
        "state": stored.state,
        "source": stored.source,
        "cwd": context.cwd,
        "roots": list(context.roots),
        "workspace": context.workspace_id,
        "trust_level": context.trust_level,
        "user": context.user_id,
        "parent": context.parent_session_id,
        "tags": list(stored.tags),
        "created": stored.created.isoformat(),
        "updated": stored.updated.isoformat(),
        "events": stored.last_seq,
        "interrupted": is_interrupted(stored, clock.now()),
    }


def ago(moment: datetime) -> str:
    """How long ago something was, in words; of what is long ago, the day."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < 24 * 3600:
        return f"{seconds // 3600:.0f} h ago"
    return moment.astimezone().strftime("%Y-%m-%d")
