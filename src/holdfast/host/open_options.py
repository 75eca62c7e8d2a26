"""The options of opening a session, and the planner that turns them into a context and a list of servers."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.file_access import access_files
from holdfast.model.ids import new_session_id
from holdfast.model.json import Json
from holdfast.model.mask import Mask
from holdfast.model.resolution import Resolution, ServerWarning, Stage
from holdfast.model.secrets import secrets_in_mapping, secrets_in_spec
from holdfast.model.server import Source
from holdfast.model.trust import Trust, lowest_trust
from holdfast.model.worker_threads import WorkerThreads
from holdfast.model.workspace import Workspace
from holdfast.resolve.inputs import ResolveInputs, prepare_resolution
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.resolve import ResolvePolicy
from holdfast.resolve.select import Restriction
from holdfast.settings import Settings
from holdfast.store.store import Store
from holdfast.workspaces.registry import Registry

_THREADS = WorkerThreads("secrets", threads=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """The options of opening a session. `cwd` must be the absolute path of an existing folder."""

    cwd: str | Path = ""
    roots: tuple[str, ...] = ()
    workspace: str = ""
    trust: Trust | None = None
    """The highest trust the session may have. The settings, the workspace or the parent may lower it."""
    servers: tuple[Json, ...] = ()
    user_id: str | None = None
    parent: SessionContext | None = None
    """The session whose agent starts this one; its user and its workspace are used."""
    title: str = ""
    opened_by: str = "python"
    """`acp`, `chat`, `cli` or `python`; `holdfast sessions` shows it as the source."""
    restriction: Restriction | None = None
    """Set by a caller that runs a defined agent: the servers and tools that the definition allows. It only narrows."""
    only_server: str | None = None
    """The only server to use; the others are ignored."""
    door: Door | None = field(default=None, compare=False)
    """The door through which the session asks its user."""


class Planner:
    """Works out which context, workspace and servers a session gets. Starts and stores nothing."""

    def __init__(self, settings: Settings, registry: Registry, inputs: ResolveInputs, store: Store) -> None:
        self._settings = settings
        self._registry = registry
        self._inputs = inputs
        self._store = store

    async def new_session_context(self, options: OpenOptions) -> tuple[SessionContext, Workspace | None]:
        """A context with a new session id, and the workspace."""
        return await access_files(self._new_session_context, options, path=str(options.cwd))

    def _new_session_context(self, options: OpenOptions) -> tuple[SessionContext, Workspace | None]:
        cwd = Path(options.cwd)
        if not cwd.is_absolute() or not cwd.is_dir():
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"{str(cwd)!r} is not an existing folder. Give its absolute path."
            )
        folder = str(cwd.resolve())
        roots = (folder, *(str(Path(root).resolve()) for root in options.roots))
        workspace = self._workspace(options, folder)
        parent = options.parent
        context = SessionContext(
            session_id=new_session_id(),
            trust_level=lowest_trust(
                self._own_trust(options, workspace),
                *(near.trust for near in self._registry.overlapping(roots)),
            ),
            workspace_id=workspace.slug if workspace is not None else "",
            cwd=folder,
            roots=roots,
            user_id=parent.user_id if parent is not None else options.user_id,
            parent_session_id=parent.session_id if parent is not None else None,
        )
        return context, workspace

    def _own_trust(self, options: OpenOptions, workspace: Workspace | None) -> Trust:
        """The session's trust, apart from workspaces that overlap with its folders."""
        parent = options.parent
        return lowest_trust(
            self._settings.trust_ceiling,
            options.trust or Trust.DIRECT,
            workspace.trust if workspace is not None else Trust.DIRECT,
            parent.trust_level if parent is not None else Trust.DIRECT,
        )

    def _trust_warnings(
        self, options: OpenOptions, roots: tuple[str, ...], workspace: Workspace | None
    ) -> tuple[ServerWarning, ...]:
        """Tell which workspaces make the session sandboxed that would be direct without them."""
        if self._own_trust(options, workspace) is Trust.SANDBOXED:
            return ()
        return tuple(
            ServerWarning(server=near.root, stage=Stage.ADMIT, text=near.describe())
            for near in self._registry.overlapping(roots)
            if near.trust is Trust.SANDBOXED
        )

    def _workspace(self, options: OpenOptions, folder: str) -> Workspace | None:
        if options.parent is not None:
            slug = options.parent.workspace_id
            return self._registry.get(slug) if slug else None
        if not options.workspace:
            return self._registry.find(folder)
        workspace = self._registry.find(options.workspace)
        if workspace is None:
            raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {options.workspace[:80]!r}.")
        return workspace

    async def prepare(
        self, options: OpenOptions, context: SessionContext, workspace: Workspace | None
    ) -> tuple[LoadedEntries, SessionContext, ResolvePolicy]:
        """Load the configuration and return the arguments of `resolve`."""
        loaded, policy = await prepare_resolution(
            self._inputs, self._store, context, workspace, options.servers
        )
        if context.trust_level is Trust.SANDBOXED:
            warnings = await access_files(
                self._trust_warnings, options, context.roots, workspace, path=context.cwd
            )
            loaded = replace(loaded, warnings=(*loaded.warnings, *warnings))
        if options.only_server is not None:
            entries = tuple(entry for entry in loaded.entries if entry.name == options.only_server)
            loaded = replace(loaded, entries=entries)
            builtins = tuple(spec for spec in policy.builtins if spec.name == options.only_server)
            policy = replace(policy, builtins=builtins)
        if options.restriction is not None:
            policy = replace(policy, restrictions=(*policy.restrictions, options.restriction))
        return loaded, context, policy

    async def masks(
        self, loaded: LoadedEntries, resolution: Resolution, policy: ResolvePolicy
    ) -> tuple[Mask, Mask]:
        """The mask for what is stored and logged, and the mask for questions to the user.

        Questions hide only what comes from the host, the user and this process's environment. The author of a project's
        file, or a client, must not be able to hide a part of a question, not even in calls of its own server.
        """
        return await _THREADS.run(self._masks, loaded, resolution, policy)

    def _masks(
        self, loaded: LoadedEntries, resolution: Resolution, policy: ResolvePolicy
    ) -> tuple[Mask, Mask]:
        own = [*loaded.own_secrets, *secrets_in_mapping(self._inputs.environ)]
        others = [*loaded.secrets]
        for values in policy.env_overrides.values():
            own += secrets_in_mapping(values)
        for server in resolution.servers:
            if server.source in (Source.PROJECT, Source.CLIENT):
                others += secrets_in_spec(server)
            else:
                own += secrets_in_spec(server)
        question_mask = Mask.of(own)
        return question_mask.plus(Mask.of(others)), question_mask.without_obtained()
