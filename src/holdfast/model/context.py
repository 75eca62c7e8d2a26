"""The session context: the facts about a session that the host guarantees, and how they are sent to servers."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.model.block_var import BlockVar
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId, parse_session_id
from holdfast.model.json import JsonObject
from holdfast.model.trust import Trust, parse_trust

META_KEY = "dev.holdfast/session"
CONTEXT_HEADER = "Holdfast-Context"
ENV_PREFIX = "HOLDFAST"
SHARED_VARIABLE = "HOLDFAST_SHARED"
"""This variable is set for a server that sessions share, and for one that was started in advance. Each request to such a server names
its session."""

WORKSPACE_PATH_VARIABLE = f"{ENV_PREFIX}_WORKSPACE_PATH"
"""The folder of the session's workspace, for a local server that can see it. A token never contains it."""

CONTEXT_FIELDS = ("session_id", "workspace_id", "trust_level", "user_id", "parent_session_id")
CONTEXT_VARIABLES = frozenset(
    {SHARED_VARIABLE, WORKSPACE_PATH_VARIABLE, *(f"{ENV_PREFIX}_{field.upper()}" for field in CONTEXT_FIELDS)}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """Which session is calling. Set by the host only; no model, client or config file can change it."""

    session_id: SessionId
    trust_level: Trust
    workspace_id: str = ""
    workspace_path: str = ""
    """The path of the workspace's folder. It is not stored. Only local servers get it: in their environment if they can see the
    folder, and under an alias."""
    cwd: str = ""
    roots: tuple[str, ...] = ()
    user_id: str | None = None
    parent_session_id: SessionId | None = None
    quota_owner: str = ""
    """Who pays for the session, in every quota of what the sessions of this process share. It is neither stored nor sent.

    At the gateway, this is the client's credential, because one credential can open many sessions. A session inside another one
    has the other one's owner. Empty: the session itself; see `payer`.
    """

    @property
    def payer(self) -> str:
        """The owner in quotas: `quota_owner`, or else the session itself."""
        return self.quota_owner or self.session_id


class HasContext(Protocol):
    """An object that belongs to a session, such as a scope. Its context may change, because the session's trust may be lowered."""

    @property
    def context(self) -> SessionContext: ...


_current: BlockVar[SessionContext | HasContext] = BlockVar("holdfast_session_context")


def current_context() -> SessionContext | None:
    """The context of the session that this code runs for, if any."""
    current = _current.get()
    return current if current is None or isinstance(current, SessionContext) else current.context


def use_context(context: SessionContext | HasContext) -> AbstractContextManager[None]:
    """Make this context current for a block, then restore the previous one.

    The context of a `HasContext` is read at each use, so that the code in the block never sees an earlier one.
    """
    return _current.use(context)


def context_fields(context: SessionContext) -> dict[str, str]:
    """The fields that are sent to servers. Local paths are not among them."""
    fields = {
        "session_id": str(context.session_id),
        "workspace_id": context.workspace_id,
        "trust_level": str(context.trust_level),
    }
    if context.user_id is not None:
        fields["user_id"] = context.user_id
    if context.parent_session_id is not None:
        fields["parent_session_id"] = context.parent_session_id
    return fields


def context_env(context: SessionContext, prefix: str = ENV_PREFIX) -> dict[str, str]:
    """The context as environment variables."""
    return {f"{prefix}_{field.upper()}": value for field, value in context_fields(context).items()}


def context_meta(context: SessionContext) -> JsonObject:
    """The context as an entry of `_meta`."""
    return {META_KEY: {**context_fields(context)}}


def parse_context(fields: Mapping[str, object]) -> SessionContext | None:
    """Parse the fields of a context; None if they are incomplete or invalid.

    This function does not check where the fields come from; the caller must.
    """
    facts = {field: fields.get(field) for field in CONTEXT_FIELDS}
    session_id, workspace_id, trust = facts["session_id"], facts["workspace_id"] or "", facts["trust_level"]
    user_id, parent = facts["user_id"], facts["parent_session_id"]
    if not (isinstance(session_id, str) and isinstance(workspace_id, str) and isinstance(trust, str)):
        return None
    if not isinstance(user_id, str | None) or not isinstance(parent, str | None):
        return None
    try:
        return SessionContext(
            session_id=parse_session_id(session_id),
            workspace_id=workspace_id,
            trust_level=parse_trust(trust),
            user_id=user_id,
            parent_session_id=parse_session_id(parent) if parent else None,
        )
    except HoldfastError:
        return None


def context_from_env(environ: Mapping[str, str], prefix: str = ENV_PREFIX) -> SessionContext | None:
    """The context in the environment of this process, which the host set when it started the process; None if it is incomplete or invalid."""
    context = parse_context({field: environ.get(f"{prefix}_{field.upper()}") for field in CONTEXT_FIELDS})
    folder = environ.get(f"{prefix}_WORKSPACE_PATH", "")
    return replace(context, workspace_path=folder) if context is not None and folder else context
