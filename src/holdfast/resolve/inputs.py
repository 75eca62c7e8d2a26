"""Collect the inputs of resolution: config files, approvals, the workspace, the settings."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from holdfast.masking.configured_secrets import secrets_in_json
from holdfast.masking.secret_shapes import looks_random
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.json import Json
from holdfast.model.mounts import read_mounts, with_bind_mounts
from holdfast.model.quota import Quota
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.server import TRUSTED_SOURCES, ServerSpec, Source
from holdfast.model.trust import Trust
from holdfast.model.worker_threads import WorkerThreads
from holdfast.model.workspace import Workspace
from holdfast.resolve.admit import NO_ANSWERS, ServerAnswers
from holdfast.resolve.approval_store import read_server_answers
from holdfast.resolve.confine import ConfinePolicy
from holdfast.resolve.last_good import LastGood
from holdfast.resolve.load import PROJECT_FILE, LoadedEntries, combine, load, load_file
from holdfast.resolve.protected_paths import paths_hidden_from_sandboxes
from holdfast.resolve.resolve import ResolvePolicy
from holdfast.resolve.select import Restriction
from holdfast.resolve.server_entry import ServerEntry
from holdfast.resolve.unconfined_paths import UnconfinedPathFinder
from holdfast.sandbox.own_code import OWN_CODE
from holdfast.sandbox.sandbox import SandboxBackend
from holdfast.settings import Settings
from holdfast.store.store import Store

BYTECODE_FOLDER = "python-cache"
"""The folder in the data folder in which Python keeps the compiled modules of project servers."""
APP_ORIGIN = "the application that embeds Host"
_MAX_PROJECT_SECRETS = 100  # each secret makes masking slower
_THREADS = WorkerThreads("secrets-in-entries", threads=4, per_owner=1)


def _any_session(context: SessionContext) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinServer:
    """A server that ships with Holdfast, and which sessions get it."""

    spec: ServerSpec
    is_offered_to: Callable[[SessionContext], bool] = _any_session
    is_on_request: bool = False
    """Whether a session gets it only if the caller that opens the session asks for it by name."""
    offered_if: str = ""
    """When `is_offered_to` is true, in words for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveInputs:
    """The inputs of resolution that are the same for all sessions of a host."""

    settings: Settings
    builtins: tuple[BuiltinServer, ...] = ()
    app_servers: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    """Servers that the application passed to `Host`, by name."""
    app_toolbox_names: frozenset[str] = frozenset()
    """Which of these servers are toolboxes, by name."""
    sandbox: SandboxBackend | None = None
    """The backend that confines the servers. None if no server will be started, as in `holdfast servers login`."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    last_good: LastGood = field(default_factory=LastGood, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenServers:
    """The servers that come with the request to open a session."""

    by_app: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    """Servers that the application passed for this session, by name. Each replaces a server of `app_servers` with its name."""
    toolbox_names: frozenset[str] = frozenset()
    """Which of these servers are toolboxes, by name."""
    by_client: tuple[Json, ...] = field(default=(), repr=False)
    """The entries in the client's request, as it sent them."""
    only_these: bool = False
    """Whether the session gets no other servers: no configured or built-in ones, and none that were passed to `Host`."""
    extra_builtins: frozenset[str] = frozenset()
    """The names of the built-in servers that the caller asks for (see `BuiltinServer.is_on_request`)."""
    is_session_open: bool = False
    """Whether the session is already open: then a damaged config file does not take its servers away."""


NONE_GIVEN = GivenServers()


def refuse_missing_builtins(
    builtins: Sequence[BuiltinServer], requested: Iterable[str], context: SessionContext
) -> Iterator[Refusal]:
    """The refusals of the built-in servers that were requested by name and that this session does not get."""
    by_name = {builtin.spec.name: builtin for builtin in builtins}
    for name in sorted(requested):
        builtin = by_name.get(name)
        if builtin is None:
            reason = f"There is no built-in server of this name. The built-in servers are: {', '.join(sorted(by_name))}."
            yield Refusal(server=name, stage=Stage.LOAD, reason=reason)
        elif not builtin.is_offered_to(context):
            yield Refusal(server=name, stage=Stage.LOAD, reason=builtin.offered_if)


def describe_missing_builtin(
    builtins: Sequence[BuiltinServer], tool: str, context: SessionContext, *, only_these: bool = False
) -> str:
    """How a session gets the built-in server of this tool; empty if the tool is not of a built-in server."""
    name = tool.partition(".")[0].partition("__")[0]
    builtin = next((one for one in builtins if one.spec.name == name), None)
    if builtin is None:
        return ""
    if only_these:
        return f"This session has only the servers that it was given (`only_these`), so not the built-in server {name!r}."
    if not builtin.is_offered_to(context):
        return f"About the built-in server {name!r}: {builtin.offered_if}"
    return (
        f"A session gets the built-in server {name!r} only on request. In Python, name it, and the other servers to use:"
        f' host.session(tools=["{name}.*", "files.*"]). For MCP clients, add it to the setting gateway.builtin.'
    )


async def prepare_resolution(
    inputs: ResolveInputs,
    store: Store,
    context: SessionContext,
    workspace: Workspace | None,
    given: GivenServers = NONE_GIVEN,
) -> tuple[LoadedEntries, ResolvePolicy]:
    """Read the config files and approvals for one session, as they are now."""
    loaded = await _load(inputs, context, given)
    answers = await _read_answers(store, loaded)
    policy = ResolvePolicy(
        builtins=()
        if given.only_these
        else tuple(
            builtin.spec
            for builtin in inputs.builtins
            if (not builtin.is_on_request or builtin.spec.name in given.extra_builtins)
            and builtin.is_offered_to(context)
        ),
        reserved_names=frozenset(builtin.spec.name for builtin in inputs.builtins),
        answers=answers,
        restrictions=() if workspace is None else (workspace_restriction(workspace),),
        env_overrides=workspace.env if workspace is not None else {},
        aliases=inputs.settings.aliases,
        confinement=await _confine_policy(
            inputs, store, context, workspace, may_confine=_may_confine_any(loaded, answers, context)
        ),
    )
    return loaded, policy


async def _load(inputs: ResolveInputs, context: SessionContext, given: GivenServers) -> LoadedEntries:
    by_app = given.by_app if given.only_these else {**inputs.app_servers, **given.by_app}
    from_app = LoadedEntries(
        entries=tuple(
            ServerEntry(
                name=name,
                source=Source.APP,
                origin=APP_ORIGIN,
                value=value,
                is_in_process=name
                in (given.toolbox_names if name in given.by_app else inputs.app_toolbox_names),
            )
            for name, value in by_app.items()
        )
    )
    paths: list[tuple[Source, Path]] = []
    if not given.only_these:
        servers = inputs.settings.servers
        paths += [(Source.OPERATOR, servers.host_file), (Source.USER, servers.user_file)]
        if context.cwd:
            paths.append((Source.PROJECT, Path(context.cwd) / PROJECT_FILE))
    files = await asyncio.gather(*(_load_file(source, path) for source, path in paths))
    kept = (
        inputs.last_good.note(str(path), file, is_open=given.is_session_open)
        for (_, path), file in zip(paths, files, strict=True)
    )
    loaded = combine(from_app, *kept, load((), given.by_client))
    if not loaded.entries and not given.by_client:
        return loaded
    if loaded.is_quick and not given.by_client:
        return _add_secrets(loaded, ())
    return await _THREADS.run(_add_secrets, loaded, given.by_client, owner=context.cwd)


async def _read_answers(store: Store, loaded: LoadedEntries) -> ServerAnswers:
    """The user's answers about projects' servers. No other servers need approval."""
    if not any(entry.source is Source.PROJECT for entry in loaded.entries):
        return NO_ANSWERS
    return await store.read(read_server_answers)


def _may_confine_any(loaded: LoadedEntries, answers: ServerAnswers, context: SessionContext) -> bool:
    """Whether some server of this session could be confined."""
    return (
        context.trust_level is Trust.SANDBOXED
        or bool(answers.confined)
        or any(isinstance(entry.value, dict) and entry.value.get("confined") for entry in loaded.entries)
    )


async def _confine_policy(
    inputs: ResolveInputs,
    store: Store,
    context: SessionContext,
    workspace: Workspace | None,
    *,
    may_confine: bool,
) -> ConfinePolicy:
    policy = ConfinePolicy(
        roots=context.roots,
        quota=workspace.quota if workspace is not None else Quota(),
        bytecode_folder=str(inputs.settings.data_dir / BYTECODE_FOLDER),
        allowed_private_hosts=inputs.settings.servers.reachable,
        environ=inputs.environ,
        extra_variables=inputs.settings.servers.pass_on,
    )
    if not may_confine:
        return policy
    unconfined = await UnconfinedPathFinder(
        inputs.settings, inputs.app_servers, inputs.environ, store, inputs.last_good
    ).find()
    return replace(
        policy,
        sandbox_problem=(await inputs.sandbox.check()).reason if inputs.sandbox is not None else "",
        protected=paths_hidden_from_sandboxes(inputs.settings),
        approved_folders=unconfined.approved_folders,
        unconfined_programs=unconfined.programs_in(context.roots),
        package_folder=str(inputs.settings.servers.packages.resolve()),
        holdfast_code=with_bind_mounts(OWN_CODE, read_mounts()),
    )


async def _load_file(source: Source, path: Path) -> LoadedEntries:
    """Read and parse a config file in a thread. If its file system does not respond, only this file is left out."""
    try:
        return await run_with_file_timeout(load_file, source, path, path=str(path))
    except HoldfastError as error:
        reason = f"{error.message} Check that its file system responds, then open the session again."
        refusal = Refusal(server=str(path), stage=Stage.LOAD, reason=reason)
        return LoadedEntries(refusals=(refusal,), is_damaged=True)


def _add_secrets(loaded: LoadedEntries, client_servers: Iterable[Json]) -> LoadedEntries:
    """The loaded entries, with the secrets in them."""
    trusted = (entry for entry in loaded.entries if entry.source in TRUSTED_SOURCES)
    from_trusted = tuple(secret for entry in trusted for secret in secrets_in_json(entry.value))
    # All values that the client sent, even those that are not valid entries.
    from_client = (secret for value in client_servers for secret in secrets_in_json(value))
    project = (entry for entry in loaded.entries if entry.source is Source.PROJECT)
    # The file of an unapproved project may contain secrets, which must not be stored. But its author must not be able to have
    # any words masked in the records. So its values are masked only if they look random.
    in_project = (secret for entry in project for secret in secrets_in_json(entry.value))
    from_project = islice(filter(looks_random, in_project), _MAX_PROJECT_SECRETS)
    return replace(loaded, secrets=(*from_trusted, *from_client, *from_project), trusted_secrets=from_trusted)


def workspace_restriction(workspace: Workspace) -> Restriction:
    """The servers and tools that a workspace allows."""
    return Restriction(
        imposed_by=f"the workspace {workspace.slug}",
        servers=workspace.servers,
        tool_names=workspace.tools,
    )
