"""Describes a stored session for users and for programs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ToolCalled
from holdfast.model.event_text import tool_name
from holdfast.model.json import JsonObject
from holdfast.store.end_interrupted import MissingEnd, missing_ends_unless_held
from holdfast.store.lease import is_held
from holdfast.store.store import ReadTx, Store
from holdfast.store.types import SessionState, StoredSession

_MAX_EVENTS_READ = 20  # enough to find the first call: only a few events of the opening precede it


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A stored session as the commands show it. A session without a prompt has its first call as title: `called files.list`."""

    stored: StoredSession
    interrupted: tuple[MissingEnd, ...]
    """The events that end the calls and the turn that were running when the session's process ended. They are not stored yet."""
    is_damaged: bool = False
    """Whether an event that the summary needs cannot be read. Then the title may be missing, or `interrupted` may be empty."""

    @property
    def state(self) -> SessionState:
        """The stored state. If no live process has the session open, it is closed: the next host will store that."""
        return self.stored.state if is_held(self.stored) else SessionState.CLOSED

    @property
    def short_state(self) -> str:
        """One word: `open`, `running` (a turn is running), `interrupted`, `damaged` or `closed`."""
        if self.is_damaged:
            return "damaged"
        if self.interrupted:
            return "interrupted"
        return "running" if self.stored.open_turn else self.state

    @property
    def state_text(self) -> str:
        """The state, and whether the last turn or its calls were interrupted, or where the turn is running."""
        if turn := describe_open_turn(self.stored):
            return f"{self.state}; its last turn {turn}"
        return f"{self.state}; its last calls were interrupted" if self.interrupted else self.state

    def to_json(self) -> JsonObject:
        """The session as `--json` prints it."""
        stored, context = self.stored, self.stored.context
        return {
            "id": context.session_id,
            "title": stored.title,
            "state": self.state,
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
            "interrupted": bool(self.interrupted),
            "damaged": self.is_damaged,
        }


async def summarize(store: Store, stored: StoredSession) -> SessionSummary:
    """Read what a summary of the session needs."""

    def read(tx: ReadTx) -> SessionSummary:
        titled, is_title_damaged = _add_title(tx, stored)
        try:
            interrupted = missing_ends_unless_held(tx, stored)
        except HoldfastError as error:
            _require_damaged(error)
            return SessionSummary(stored=titled, interrupted=(), is_damaged=True)
        return SessionSummary(stored=titled, interrupted=interrupted, is_damaged=is_title_damaged)

    return await store.read(read)


async def with_titles(store: Store, sessions: Iterable[StoredSession]) -> list[StoredSession]:
    """The sessions. One without a title, because nothing was prompted, gets its first call as title: `called files.list`."""
    return await store.read(lambda tx: [_add_title(tx, stored)[0] for stored in sessions])


def _add_title(tx: ReadTx, stored: StoredSession) -> tuple[StoredSession, bool]:
    """The session with a title, and whether the events that the title needs are damaged."""
    if stored.title:
        return stored, False
    try:
        first = tx.events(stored.context.session_id, 0, _MAX_EVENTS_READ)
    except HoldfastError as error:
        _require_damaged(error)
        return stored, True
    calls = (each.event for each in first if isinstance(each.event, ToolCalled))
    return replace(stored, title=next((f"called {tool_name(call)}" for call in calls), "")), False


def _require_damaged(error: HoldfastError) -> None:
    """Raise the error unless it says that an event is damaged. One damaged session must not prevent a list of all."""
    if error.code is not codes.STORE_CORRUPT:
        raise error


def time_ago(moment: datetime) -> str:
    """How long ago a moment was, such as "5 min ago"; after a day, its date."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < 24 * 3600:
        return f"{seconds // 3600:.0f} h ago"
    return moment.astimezone().strftime("%Y-%m-%d")


def describe_open_turn(stored: StoredSession) -> str:
    """What happened to the last turn: "was interrupted" or "is running in …"; empty if it has ended."""
    if not stored.open_turn:
        return ""
    if stored.lease is None or not is_held(stored):
        return "was interrupted"
    return f"is running in {stored.lease.owner}"
