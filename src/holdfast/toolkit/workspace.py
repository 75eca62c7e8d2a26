"""Find the workspace of a call: the one in its `workspace` argument, else the session's own workspace.

For anonymous callers, the workspace that the client announced takes the place of the session's own. The current folder is never
used, and no environment variables except the session context.
"""

import logging
import shlex
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.model import codes
from holdfast.model.context import META_KEY, SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.model.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.workspaces import Registry

log = logging.getLogger(__name__)

_FOLDER = "workspaces"
_ADDRESS_FORMS = "a workspace's slug, its name, or an absolute path in it"


class WorkspaceLookup(Protocol):
    """Finds registered workspaces."""

    def get(self, slug: str) -> Workspace:
        """The workspace with this slug; raises UNKNOWN_WORKSPACE when there is none."""
        ...

    def find(self, address: str) -> Workspace | None:
        """The workspace with this address (its slug, its name, or a path in it); None when there is none."""
        ...


class HiddenWorkspace(Workspace):
    """A workspace whose folder this server cannot see. Reading `path` raises MISSING_WORKSPACE."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name != "path":
            return super().__getattribute__(name)
        raise HoldfastError(
            codes.MISSING_WORKSPACE,
            f"This server cannot see the folder of the workspace {self.slug!r}.",
            hint="Open the session in the workspace's folder, in Holdfast's commands with --cwd FOLDER: a confined server sees only the "
            "session's folders. A server on another machine sees no folder of the session.",
        )

    def __repr__(self) -> str:
        return f"HiddenWorkspace(slug={self.slug!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HiddenWorkspace) and other.slug == self.slug

    def __hash__(self) -> int:
        return hash(self.slug)


class LocalWorkspaces:
    """The registry in Holdfast's data folder on this machine, opened at the first look-up."""

    @cached_property
    def _settings(self) -> "Settings":
        from holdfast import settings

        return settings.load()

    @cached_property
    def _registry(self) -> "Registry":
        from holdfast.workspaces import Registry

        return Registry(self._settings.data_dir / _FOLDER)

    def get(self, slug: str) -> Workspace:
        return self._registry.get(slug)

    def find(self, address: str) -> Workspace | None:
        return self._registry.find(address)

    def find_or_register(self, address: str) -> Workspace | None:
        """Find a workspace. If the operator allows it, a folder that belongs to none is registered.

        Raise if a file in the folder names a workspace, and the user has not agreed to it yet: a folder that is registered
        itself cannot join that workspace.
        """
        found = self._registry.find(address)
        if found is not None or not address.startswith("/"):
            return found
        from holdfast.model.real_path import real_path
        from holdfast.workspaces.auto_register import register_if_allowed

        if announced := self._registry.find_announced(real_path(address)):
            folder, slug = announced[0].folder, announced[1].slug
            raise HoldfastError(
                codes.UNKNOWN_WORKSPACE,
                f"{folder} names the workspace {slug!r}, but does not belong to it yet.",
                hint=f"To accept this: {shlex.join(['holdfast', 'workspaces', 'bind', folder])}",
            )
        return register_if_allowed(self._registry, address, self._settings)

    def why_not_registered(self, path: str) -> str:
        """Why the folder of an anonymous caller was not registered, for a message; empty if the operator allows no folder."""
        from holdfast.workspaces.auto_register import why_refused

        return why_refused(path, self._settings)


def resolve_workspace(
    tool: str, address: str, session: SessionContext | None, announced: str, registry: WorkspaceLookup
) -> Workspace:
    """The workspace of a call; raises if the call has none, if it is unknown, or if the session may not use it.

    `address` is the argument `workspace` of the call: a slug, a name or a path, or empty. `announced` is the workspace that
    an anonymous client announced.
    """
    address = address.strip()
    if session is None and address:
        return _find_for_anonymous_argument(tool, address, announced, registry)
    own = _session_workspace(session, announced, registry)
    if not address:
        if own is None:
            raise HoldfastError(
                codes.MISSING_WORKSPACE,
                f"missing workspace: {_how_to_choose(session)}, or call from a session that has one.",
                hint="In Holdfast's commands, --workspace NAME or --cwd FOLDER opens such a session. `holdfast workspaces list` lists the workspaces.",
            )
        return own
    if session is not None and session.trust_level is Trust.SANDBOXED:
        return _find_own(address, session, own, registry)
    if own is not None and address == own.slug:
        return own
    found = _find_registered(address, registry)
    if own is not None and own.slug != found.slug:
        _log_difference(tool, found.slug, own.slug)
    return found


def _how_to_choose(session: SessionContext | None) -> str:
    """What a caller without a workspace can do about it, as a clause."""
    argument = f"pass `workspace` ({_ADDRESS_FORMS})"
    if session is None:
        return f"{argument}, send it in `_meta` as the text `workspace` of {META_KEY!r}"
    if session.trust_level is Trust.SANDBOXED:
        return f"this sandboxed session has none. In a direct session, {argument}"
    return argument


def _find_for_anonymous_argument(
    tool: str, address: str, announced: str, registry: WorkspaceLookup
) -> Workspace:
    """The workspace in the argument of an anonymous call. A different announced workspace is only logged."""
    found = _find_for_anonymous(address, registry)
    if announced:
        try:
            other = registry.find(announced)
        except HoldfastError:
            other = None
        if other is None or other.slug != found.slug:
            _log_difference(tool, found.slug, other.slug if other is not None else announced[:200])
    return found


def _log_difference(tool: str, argument: str, own: str) -> None:
    log.info(
        "workspace argument differs from the session's",
        extra={"tool": tool, "argument": argument, "session_workspace": own},
    )


def _session_workspace(
    session: SessionContext | None, announced: str, registry: WorkspaceLookup
) -> Workspace | None:
    """The session's own workspace, or the one that an anonymous caller announced; None if there is none."""
    if session is None:
        return _find_for_anonymous(announced, registry) if announced else None
    return _get_or_stub(session, registry) if session.workspace_id else None


def _get_or_stub(session: SessionContext, registry: WorkspaceLookup) -> Workspace:
    """The session's own workspace. If the registry does not have it, as in a sandbox, only its slug and perhaps its path are known."""
    slug, path = session.workspace_id, session.workspace_path
    try:
        return registry.get(slug)
    except HoldfastError as error:
        if error.code is not codes.UNKNOWN_WORKSPACE:
            raise
        kind = Workspace if path else HiddenWorkspace
        return kind(slug=slug, name=slug, path=path, trust=session.trust_level)


def _find_own(
    address: str, session: SessionContext, own: Workspace | None, registry: WorkspaceLookup
) -> Workspace:
    """A sandboxed session's own workspace, if the address refers to it. All other addresses are denied, whether a workspace has them or not."""
    if own is not None:
        if address == own.slug:
            return own
        try:
            found = registry.find(address)
        except HoldfastError:
            found = None
        if found is not None and found.slug == own.slug:
            return own
    raise HoldfastError(
        codes.WORKSPACE_DENIED,
        f"{address[:80]!r} is not the workspace of this sandboxed session ({session.workspace_id or 'none'}).",
    )


def _find_for_anonymous(address: str, registry: WorkspaceLookup) -> Workspace:
    """The workspace that an anonymous caller names. If the operator allows it, a folder that belongs to none is registered now."""
    if isinstance(registry, LocalWorkspaces):
        found = registry.find_or_register(address)
        why = registry.why_not_registered(address) if found is None else ""
        return _require(address, found, why)
    return _find_registered(address, registry)


def _find_registered(address: str, registry: WorkspaceLookup) -> Workspace:
    return _require(address, registry.find(address))


def _require(address: str, found: Workspace | None, why: str = "") -> Workspace:
    if found is None and address.startswith("/"):
        reason = f" It was not registered automatically: {why}." if why else ""
        raise HoldfastError(
            codes.UNKNOWN_WORKSPACE,
            f"{address[:200]!r} belongs to no workspace.{reason}",
            # The hint is the same for every path, so a remote caller does not learn where Holdfast's data is.
            hint="Register the folder, or one above it, but not one that contains Holdfast's data, such as a home folder: "
            + shlex.join(["holdfast", "workspaces", "add", address[:200]]),
        )
    if found is None:
        raise HoldfastError(
            codes.UNKNOWN_WORKSPACE, f"There is no workspace {address[:80]!r}. Pass {_ADDRESS_FORMS}."
        )
    return found
