"""What a session is opened with, and what follows from that: its context, its workspace, its servers, its secrets."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_session_id
from holdfast.model.json import Json
from holdfast.model.mask import Mask
from holdfast.model.resolution import Resolution
from holdfast.model.secrets import secrets_in_mapping, secrets_in_spec
from holdfast.model.trust import Trust, lowest_trust
from holdfast.model.workspace import Workspace
from holdfast.resolve.inputs import ResolveInputs, prepare_resolution
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.resolve import ResolvePolicy
from holdfast.resolve.select import Restriction
from holdfast.settings import Settings
from holdfast.store.store import Store
from holdfast.workspaces.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a session is opened with. Trust can only be lowered; folders are absolute and exist."""

    cwd: str | Path = ""
    roots: tuple[str, ...] = ()
    workspace: str = ""
    trust: Trust | None = None
    servers: tuple[Json, ...] = ()
    user_id: str | None = None
    parent: SessionContext | None = None
    title: str = ""
    source: str = "python"
    allow_list: Restriction | None = None
    """The servers and tools that an agent's definition allows."""
    only: str | None = None
    """The only server to use; the others are ignored."""
    door: Door | None = field(default=None, compare=False)
    """The door the session was opened through; the session asks its user through it."""


class Planner:
    """Works out what an opening gives a session. Nothing is started or stored."""

    def __init__(self, settings: Settings, registry: Registry, inputs: ResolveInputs, store: Store) -> None:
        self._settings = settings
        self._registry = registry
        self._inputs = inputs
        self._store = store

    def session_context(self, opening: Opening) -> tuple[SessionContext, Workspace | None]:
        """The context of a new session, and its workspace."""
        cwd = Path(opening.cwd)
        if not cwd.is_absolute() or not cwd.is_dir():
            raise HoldfastError(codes.BAD_ARGUMENT, f"{str(cwd)!r} is not the absolute path of a folder.")
        folder = str(cwd.resolve())
        workspace = self._workspace(opening, folder)
        parent = opening.parent
        trust = lowest_trust(
            self._settings.trust_ceiling,
            opening.trust or Trust.DIRECT,
            workspace.trust if workspace is not None else Trust.DIRECT,
            parent.trust_level if parent is not None else Trust.DIRECT,
        )
        context = SessionContext(
            session_id=new_session_id(),
            trust_level=trust,
            workspace_id=workspace.slug if workspace is not None else "",
            cwd=folder,
            roots=(folder, *(str(Path(root).resolve()) for root in opening.roots)),
            user_id=parent.user_id if parent is not None else opening.user_id,
            parent_session_id=parent.session_id if parent is not None else None,
        )
        return context, workspace

    def _workspace(self, opening: Opening, folder: str) -> Workspace | None:
        if opening.parent is not None:
            slug = opening.parent.workspace_id
            return self._registry.get(slug) if slug else None
        if not opening.workspace:
            return self._registry.find(folder)
        workspace = self._registry.find(opening.workspace)
        if workspace is None:
            raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {opening.workspace[:80]!r}.")
        return workspace

    async def prepare(
        self, opening: Opening, context: SessionContext, workspace: Workspace | None
    ) -> tuple[LoadedEntries, SessionContext, ResolvePolicy]:
        """The arguments of `resolve` for this opening."""
        loaded, policy = await prepare_resolution(
            self._inputs, self._store, context, workspace, opening.servers
        )
        if opening.only is not None:
            entries = tuple(entry for entry in loaded.entries if entry.name == opening.only)
            loaded = replace(loaded, entries=entries)
            builtins = tuple(spec for spec in policy.builtins if spec.name == opening.only)
            policy = replace(policy, builtins=builtins)
        if opening.allow_list is not None:
            policy = replace(policy, allow_lists=(*policy.restrictions, opening.allow_list))
        return loaded, context, policy

    def mask(self, loaded: LoadedEntries, resolution: Resolution) -> Mask:
        """Hides the secrets of the configuration, of the servers, and of this process's environment."""
        given = [secret for server in resolution.servers for secret in secrets_in_spec(server)]
        return Mask.of([*loaded.secrets, *given, *secrets_in_mapping(self._inputs.environ)])
