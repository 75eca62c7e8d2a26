"""What carries a session's context to a server: the names, and the words under them."""

from collections.abc import Mapping

from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import parse_session_id
from holdfast.model.json import JsonObject
from holdfast.model.trust import parse_trust

META_KEY = "dev.holdfast/session"
HEADER = "Holdfast-Context"
PREFIX = "HOLDFAST"
SHARED = "HOLDFAST_SHARED"
"""Says that a server is shared by sessions: it learns who is calling from each request."""

FIELDS = ("session_id", "workspace_id", "trust_level", "user_id", "parent_session_id")
CONTEXT_VARIABLES = frozenset({SHARED, *(f"{PREFIX}_{field.upper()}" for field in FIELDS)})


def spoken(context: SessionContext) -> dict[str, str]:
    """The facts that travel, by field. Local paths stay here: a remote server has no use for them."""
    said = {
        "session_id": str(context.session_id),
        "workspace_id": context.workspace_id,
        "trust_level": str(context.trust_level),
    }
    if context.user_id is not None:
        said["user_id"] = context.user_id
    if context.parent_session_id is not None:
        said["parent_session_id"] = context.parent_session_id
    return said


def context_env(context: SessionContext, prefix: str = PREFIX) -> dict[str, str]:
    """The context as variables of a server's environment."""
    return {f"{prefix}_{field.upper()}": value for field, value in spoken(context).items()}


def context_meta(context: SessionContext) -> JsonObject:
    """The context as an entry of a request's `_meta`."""
    return {META_KEY: {**spoken(context)}}


def read_context(said: Mapping[str, object]) -> SessionContext | None:
    """The context that a believed carrier brought, by field; None unless it is whole and makes sense."""
    facts = {field: said.get(field) for field in FIELDS}
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


def read_env(environ: Mapping[str, str], prefix: str = PREFIX) -> SessionContext | None:
    """The context that the spawner put into this process's environment."""
    return read_context({field: environ.get(f"{prefix}_{field.upper()}") for field in FIELDS})
