"""What a session may use: its context, its workspace, its servers and their tools, its permission rules.

No session is opened and no server is started here.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.builtin.servers import ALWAYS_ASKED, BUILTIN_ORIGIN
from holdfast.host.approvals import Approvals
from holdfast.host.open_options import OpenOptions
from holdfast.host.opening_timer import OpeningTimer
from holdfast.host.session_folders import check_total_length, resolve_path
from holdfast.host.stored_servers import not_given_again
from holdfast.masking.configured_secrets import secrets_by_name, secrets_in_mapping, secrets_in_spec
from holdfast.masking.mask import Mask
from holdfast.masking.urls import secrets_in_urls
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.ids import new_session_id
from holdfast.model.permission import PermissionRestriction
from holdfast.model.resolution import Resolution, SessionWarning, Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust, lowest_trust
from holdfast.model.worker_threads import WorkerThreads
from holdfast.model.workspace import Workspace
from holdfast.resolve.inputs import (
    GivenServers,
    ResolveInputs,
    describe_missing_builtin,
    prepare_resolution,
    refuse_missing_builtins,
    workspace_restriction,
)
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.resolve import ResolvePolicy, resolve_in_thread
from holdfast.resolve.screen_tools import ScreenedTools
from holdfast.resolve.select import Restriction
from holdfast.session.permission_rules import PermissionRules, rules_from_settings
from holdfast.settings import PermissionSettings, Settings
from holdfast.store.store import Store
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.mcp.tools import Tool
from holdfast.workspaces.registry import Registry

_THREADS = WorkerThreads("secrets", threads=2)
_OPENER = "the application that opened the session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The servers that a session gets, and the masks for its secrets."""

    resolution: Resolution
    mask: Mask
    """Masks what is stored and logged."""
    question_mask: Mask
    """Masks what is shown in questions to the user."""


class Admission:
    """Decides what the sessions of a host may use."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        inputs: ResolveInputs,
        store: Store,
        approvals: Approvals,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._inputs = inputs
        self._store = store
        self._approvals = approvals
        self.set_rules(settings.permission)
        # The model's API key is a secret, whatever its variable is called.
        model_key = inputs.environ.get(inputs.settings.model.api_key_env, "").strip()
        urls = f"{inputs.settings.model.base_url} {inputs.settings.traces.otlp_url}"
        self._environ_secrets = (
            *secrets_by_name(inputs.environ),
            *secrets_in_urls(urls),
            *filter(None, [model_key]),
        )
        mask = Mask.of(self._environ_secrets)
        self._environ_masks = mask, mask.without_obtained()

    def set_rules(self, settings: PermissionSettings) -> None:
        """Use other permission rules for the sessions that are planned from now on."""
        self._rules = rules_from_settings(settings).restrict(ALWAYS_ASKED, BUILTIN_ORIGIN)

    async def plan(self, options: OpenOptions) -> "SessionPlan":
        """Plan a session: its context (with a new id), its workspace and its permission rules."""
        context, workspace, folder_workspace, warnings = await run_with_file_timeout(
            self._new_context, options, path=str(options.cwd)
        )
        rules = self._rules if options.parent is None else options.parent.permission.rules
        for restricting in (workspace, folder_workspace):
            if restricting is not None:
                rules = rules.restrict(restricting.permission, f"the workspace {restricting.slug!r}")
        for definition in options.limiting_definitions:
            limit = PermissionRestriction(max_mode=definition.mode)
            rules = rules.restrict(limit, f"the agent {definition.name!r}", "mode")
        if folder_workspace is not None:
            restrictions = (*options.restrictions, workspace_restriction(folder_workspace))
            options = replace(options, restrictions=tuple(dict.fromkeys(restrictions)))
        return SessionPlan(
            context=context,
            workspace=workspace,
            options=options,
            rules=rules,
            admission=self,
            warnings=warnings,
        )

    async def load(self, plan: "SessionPlan") -> tuple[LoadedEntries, ResolvePolicy]:
        """Load the configuration: the server entries, and the policy that decides about them."""
        options, context = plan.options, plan.context
        given = GivenServers(
            by_app=options.app_servers.entries,
            toolbox_names=options.app_servers.toolbox_names,
            by_client=options.client_servers,
            only_these=options.only_these,
            extra_builtins=options.extra_builtins | (options.builtins or frozenset()),
            is_session_open=plan.is_open,
        )
        loaded, policy = await prepare_resolution(self._inputs, self._store, context, plan.workspace, given)
        folder_warnings = plan.warnings
        # The folder may have changed since the session was planned.
        if plan.is_open and plan.workspace is None:
            folder_warnings = await run_with_file_timeout(
                self._unbound_workspace_warnings, context.cwd, path=context.cwd
            )
        if folder_warnings:
            loaded = replace(loaded, warnings=(*loaded.warnings, *folder_warnings))
        if context.trust_level is Trust.SANDBOXED:
            trust_warnings = await run_with_file_timeout(self._trust_warnings, plan, path=context.cwd)
            loaded = replace(loaded, warnings=(*loaded.warnings, *trust_warnings))
        if options.builtins is not None:
            kept = tuple(spec for spec in policy.builtins if spec.name in options.builtins)
            policy = replace(policy, builtins=kept)
            if not options.only_these:
                missing = refuse_missing_builtins(self._inputs.builtins, options.builtins, context)
                loaded = replace(loaded, refusals=(*loaded.refusals, *missing))
        if options.only_server is not None:
            entries = tuple(entry for entry in loaded.entries if entry.name == options.only_server)
            loaded = replace(loaded, entries=entries)
            builtins = tuple(spec for spec in policy.builtins if spec.name == options.only_server)
            policy = replace(policy, builtins=builtins)
        return loaded, replace(policy, restrictions=(*policy.restrictions, *_restrictions(options)))

    def describe_missing_builtin(self, tool: str, plan: "SessionPlan") -> str:
        """How a session gets the built-in server of this tool; empty if the tool is not of a built-in server."""
        only_these = plan.options.only_these
        return describe_missing_builtin(self._inputs.builtins, tool, plan.context, only_these=only_these)

    async def resolve(
        self, loaded: LoadedEntries, policy: ResolvePolicy, context: SessionContext
    ) -> Resolution:
        """Decide which servers a session gets. A project's server is refused unless its program is as it was approved."""
        resolution = await resolve_in_thread(loaded, context, policy)
        return await self._approvals.refuse_changed_programs(resolution, context.cwd)

    async def screen(
        self, spec: ServerSpec, tools: Sequence[Tool], throttle: LoopThrottle, *, user_id: str, mask: Mask
    ) -> ScreenedTools:
        """Decide which tools of a server a user's sessions may call."""
        return await self._approvals.screen(spec, tools, user_id=user_id, mask=mask, throttle=throttle)

    async def masks(
        self, loaded: LoadedEntries, resolution: Resolution, policy: ResolvePolicy
    ) -> tuple[Mask, Mask]:
        """The mask for what is stored and logged, and the mask for questions to the user.

        Questions hide only secrets of the application, the operator, the user, the workspace and this process's
        environment. The author of a project's file, or a client, must not be able to hide a part of a question, not even
        in calls to its own server.
        """
        if loaded.is_quick:
            return self._masks(loaded, resolution, policy)
        return await _THREADS.run(self._masks, loaded, resolution, policy)

    def _new_context(
        self, options: OpenOptions
    ) -> tuple[SessionContext, Workspace | None, Workspace | None, tuple[SessionWarning, ...]]:
        """The context, the session's workspace, the workspace of its folder if that is another one (it can only restrict), and warnings."""
        cwd = Path(options.cwd)
        if why := _why_no_folder(cwd):
            raise HoldfastError(codes.BAD_ARGUMENT, why)
        folder = resolve_path("cwd", str(cwd))
        roots = (folder, *(resolve_path("roots", str(Path(root).absolute())) for root in options.roots))
        check_total_length(roots)
        workspace = self._workspace(options, folder)
        parent = options.parent.context if options.parent is not None else None
        context = SessionContext(
            session_id=new_session_id(),
            trust_level=lowest_trust(
                self._own_trust(options, workspace),
                *(overlap.trust for overlap in self._registry.find_overlaps(roots)),
            ),
            workspace_id=workspace.slug if workspace is not None else "",
            workspace_path=workspace.path if workspace is not None else "",
            cwd=folder,
            roots=roots,
            user_id=parent.user_id if parent is not None else options.user_id,
            parent_session_id=parent.session_id if parent is not None else None,
            quota_owner=parent.payer if parent is not None else options.quota_owner,
        )
        folder_workspace = self._registry.find(folder) if parent is not None or options.workspace else None
        is_other = folder_workspace is not None and (
            workspace is None or folder_workspace.slug != workspace.slug
        )
        warnings = self._unbound_workspace_warnings(folder) if workspace is None else ()
        return context, workspace, folder_workspace if is_other else None, warnings

    def _own_trust(self, options: OpenOptions, workspace: Workspace | None) -> Trust:
        """The session's trust, not counting other workspaces that overlap with its folders."""
        parent = options.parent.context if options.parent is not None else None
        return lowest_trust(
            self._settings.trust_ceiling,
            options.trust or Trust.DIRECT,
            workspace.trust if workspace is not None else Trust.DIRECT,
            parent.trust_level if parent is not None else Trust.DIRECT,
        )

    def _trust_warnings(self, plan: "SessionPlan") -> tuple[SessionWarning, ...]:
        """Warn about each overlapping workspace that makes this session sandboxed, unless it is sandboxed anyway."""
        if self._own_trust(plan.options, plan.workspace) is Trust.SANDBOXED:
            return ()
        return tuple(
            SessionWarning(folder=overlap.root, stage=Stage.ADMIT, text=overlap.describe())
            for overlap in self._registry.find_overlaps(plan.context.roots)
            if overlap.trust is Trust.SANDBOXED
        )

    def _unbound_workspace_warnings(self, folder: str) -> tuple[SessionWarning, ...]:
        """A warning if a file in the folder names a workspace that the folder is not bound to, unless the user has declined to bind it."""
        announcement = self._registry.find_announced(folder)
        if announcement is None:
            return ()
        announced, workspace = announcement
        bind = shlex.join(["holdfast", "workspaces", "bind", announced.folder])
        text = f"{announced.folder} says that it belongs to the workspace {workspace.slug!r}. If that is right, run: {bind}"
        return (SessionWarning(folder=announced.folder, stage=Stage.ADMIT, text=text),)

    def _workspace(self, options: OpenOptions, folder: str) -> Workspace | None:
        """The session's workspace: its parent's, the one in the options, or the one that the folder belongs to."""
        if options.parent is not None:
            slug = options.parent.context.workspace_id
            return self._registry.get(slug) if slug else None
        if not options.workspace:
            return self._registry.find(folder)
        workspace = self._registry.find(options.workspace)
        if workspace is None:
            raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {options.workspace[:80]!r}.")
        return workspace

    def _masks(
        self, loaded: LoadedEntries, resolution: Resolution, policy: ResolvePolicy
    ) -> tuple[Mask, Mask]:
        own = [*loaded.trusted_secrets]
        from_others = [*loaded.secrets]
        for values in policy.env_overrides.values():
            own += secrets_in_mapping(values)
        for server in resolution.servers:
            if server.source in (Source.PROJECT, Source.CLIENT):
                from_others += secrets_in_spec(server)
            else:
                own += secrets_in_spec(server)
        if not own and not from_others:
            return self._environ_masks
        question_mask = Mask.of([*own, *self._environ_secrets])
        return question_mask.plus(Mask.of(from_others)), question_mask.without_obtained()


def _why_no_folder(cwd: Path) -> str:
    """Why this cannot be the folder of a session; empty if it can."""
    if cwd.is_absolute() and cwd.is_dir():
        return ""
    shown = repr(str(cwd))
    if "~" in cwd.parts:
        return f"{shown} is not an existing folder. `~` is not replaced: give Path(…).expanduser()."
    if cwd == Path():
        return "A new session needs a folder. Give its absolute path as `cwd`."
    if not cwd.is_absolute():
        return f"{shown} is not an absolute path. Give the absolute path of a folder."
    if cwd.exists():
        return f"{shown} is not a folder. Give the absolute path of a folder."
    return f"{shown} is not an existing folder. Give its absolute path."


def _restrictions(options: OpenOptions) -> tuple[Restriction, ...]:
    by_tools = (Restriction(imposed_by=_OPENER, patterns=patterns) for patterns in options.tools)
    return (*by_tools, *options.restrictions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """A session that is being opened, or whose servers are resolved again. `admit` decides which servers it gets."""

    context: SessionContext
    workspace: Workspace | None
    options: OpenOptions
    rules: PermissionRules
    """The permission rules: those of the settings or of the parent, restricted by workspaces and agent definitions."""
    admission: Admission
    warnings: tuple[SessionWarning, ...] = ()
    """What the user should know about the session's folder."""
    is_open: bool = False
    """Whether the session is already open, and only its servers are resolved again."""
    not_given: tuple[str, ...] = ()
    """The servers that an application gave to the stored session earlier, and has not given again."""
    timer: OpeningTimer = field(default_factory=OpeningTimer, compare=False)
    """How long each phase of the opening has taken."""

    async def admit(self) -> Admitted:
        """Decide which servers the session gets."""
        loaded, policy = await self.admission.load(self)
        resolution = await self.admission.resolve(loaded, policy, self.context)
        resolved = {server.name for server in resolution.servers}
        refused = {refusal.server for refusal in resolution.refusals}
        if missing := [not_given_again(name) for name in self.not_given if name not in resolved | refused]:
            resolution = replace(resolution, refusals=(*resolution.refusals, *missing))
        mask, question_mask = await self.admission.masks(loaded, resolution, policy)
        mask = mask.for_session(self.context.session_id)
        return Admitted(resolution=resolution, mask=mask, question_mask=question_mask)

    async def preview(self) -> tuple[LoadedEntries, Resolution]:
        """The configured entries, and the servers that the session would get."""
        loaded, policy = await self.admission.load(self)
        return loaded, await self.admission.resolve(loaded, policy, self.context)

    async def screen(
        self, spec: ServerSpec, tools: Sequence[Tool], mask: Mask, throttle: LoopThrottle
    ) -> ScreenedTools:
        """Decide which tools of a server the session may call. Definitions are masked with `mask` before they are stored."""
        user_id = self.context.user_id or ""
        return await self.admission.screen(spec, tools, throttle, user_id=user_id, mask=mask)
