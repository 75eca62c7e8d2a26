"""What can be asked about sessions, and how far the one who asks can see."""

from dataclasses import dataclass

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.store.rows import SessionState

MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Which sessions a caller can see at all; None means any, and the user "" those that are no user's."""

    workspace_id: str | None = None
    trust_level: Trust | None = None
    user_id: str | None = None

    @classmethod
    def of(cls, context: SessionContext) -> "Reach":
        """What a session can see: its own workspace and user; only sandboxed ones if it is sandboxed itself."""
        only = Trust.SANDBOXED if context.trust_level is Trust.SANDBOXED else None
        return cls(workspace_id=context.workspace_id, trust_level=only, user_id=context.user_id)


OPERATOR = Reach()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Sessions within reach, the latest first; a session has all of the tags."""

    reach: Reach
    cwd: str | None = None
    tags: tuple[str, ...] = ()
    source: str | None = None
    parent: SessionId | None = None
    state: SessionState | None = None
    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        _check_limit(self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """Messages and titles within reach that have all of the words, the latest first."""

    reach: Reach
    words: str
    tags: tuple[str, ...] = ()
    source: str | None = None
    limit: int = 20
    cursor: str | None = None

    def __post_init__(self) -> None:
        _check_limit(self.limit)


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MOST:
        raise HoldfastError(codes.BAD_ARGUMENT, f"A page has 1 to {MOST} answers, not {limit}.")
