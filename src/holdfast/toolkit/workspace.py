"""Which workspace a call works in: named in the call, else the session's own, else none and an error.

Never the process's folder, and never a variable of its environment beyond the context.
"""

import logging
from typing import Protocol

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.model.workspace import Workspace

log = logging.getLogger(__name__)

FORMS = "a workspace's slug, its name, or an absolute path in it"


class Workspaces(Protocol):
    """Where workspaces are registered."""

    def get(self, slug: str) -> Workspace:
        """The workspace of this slug."""
        ...

    def find(self, address: str) -> Workspace | None:
        """The workspace that an address means."""
        ...


def resolve_workspace(
    tool: str, named: str, session: SessionContext | None, announced: str, registry: Workspaces
) -> Workspace:
    """The one workspace of a call: registered, and within the session's reach."""
    named = named.strip()
    own = _own(session, announced, registry)
    if not named:
        if own is None:
            raise HoldfastError(
                codes.MISSING_WORKSPACE,
                f"missing workspace: pass `workspace` ({FORMS}), or call from a session that has one.",
            )
        return own
    if session is not None and session.trust_level is Trust.SANDBOXED:
        return _own_only(named, session, own, registry)
    found = own if own is not None and named == own.slug else _found(named, registry)
    if own is not None and own.slug != found.slug:
        log.info(
            "workspace argument differs from the session's",
            extra={"tool": tool, "argument": found.slug, "session_workspace": own.slug},
        )
    return found


def _own(session: SessionContext | None, announced: str, registry: Workspaces) -> Workspace | None:
    if session is None:
        return _found(announced, registry) if announced else None
    return _vouched(session.workspace_id, registry) if session.workspace_id else None


def _vouched(slug: str, registry: Workspaces) -> Workspace:
    """The workspace that the host vouches for. On another machine, or confined, its entry may be out of sight."""
    try:
        return registry.get(slug)
    except HoldfastError as error:
        if error.code is not codes.UNKNOWN_WORKSPACE:
            raise
        return Workspace(slug=slug, name=slug, path="")


def _own_only(named: str, session: SessionContext, own: Workspace | None, registry: Workspaces) -> Workspace:
    """A sandboxed session's own workspace under any name. Others and unknown ones look the same from there."""
    if own is not None:
        if named == own.slug:
            return own
        try:
            found = registry.find(named)
        except HoldfastError:
            found = None
        if found is not None and found.slug == own.slug:
            return own
    raise HoldfastError(
        codes.WORKSPACE_DENIED,
        f"A sandboxed session works in its own workspace ({session.workspace_id or 'none'}), not in {named[:80]!r}.",
    )


def _found(address: str, registry: Workspaces) -> Workspace:
    found = registry.find(address)
    if found is None:
        raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {address[:80]!r}. Pass {FORMS}.")
    return found
