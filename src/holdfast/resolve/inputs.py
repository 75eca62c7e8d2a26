"""Collect the inputs of resolution: config files, approvals, the workspace, the settings."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from holdfast.masking.configured_secrets import secrets_in_json
from holdfast.masking.looks_generated import looks_random
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.file_access import run_with_file_timeout
from holdfast.model.json import Json
from holdfast.model.mounts import read_mounts, with_aliases
from holdfast.model.process import Quota
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.model.worker_threads import WorkerThreads
from holdfast.model.workspace import Workspace
from holdfast.resolve.approval_store import SERVER_KEY_PREFIX, approved_program_folders
from holdfast.resolve.confine import ConfinePolicy
from holdfast.resolve.load import PROJECT_FILE, LoadedEntries, combine, load, load_file
from holdfast.resolve.protected import folders_hidden_from_sandboxes
from holdfast.resolve.resolve import ResolvePolicy
from holdfast.resolve.select import Restriction
from holdfast.resolve.server_entry import ServerEntry
from holdfast.sandbox.own_code import OWN_CODE
from holdfast.settings import Settings
from holdfast.store.store import Store

BYTECODE_FOLDER = "python-cache"
"""The folder in the data folder in which Python keeps the compiled modules of project servers."""
INLINE_ORIGIN = "the program that runs the host"
_MAX_PROJECT_SECRETS = 100  # every further secret makes masking slower
_THREADS = WorkerThreads("secrets-in-entries", threads=4, per_owner=1)


def _any_session(context: SessionContext) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinServer:
    """A server that ships with Holdfast, and which sessions get it."""

    spec: ServerSpec
    is_offered_to: Callable[[SessionContext], bool] = _any_session


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveInputs:
    """The inputs that are the same for all sessions of a host."""

    settings: Settings
    builtins: tuple[BuiltinServer, ...] = ()
    inline_servers: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    """Servers that the embedding program passed to the host."""
    sandbox_problem: str = ""
    """Why the sandbox does not work on this machine; empty if it works."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)


async def prepare_resolution(
    inputs: ResolveInputs,
    store: Store,
    context: SessionContext,
    workspace: Workspace | None,
    client_servers: Sequence[Json] = (),
) -> tuple[LoadedEntries, ResolvePolicy]:
    """Read the config files and approvals, once for every session: a change takes effect in the next one."""
    servers = inputs.settings.servers
    project = Path(context.cwd) if context.cwd else None
    paths = [(Source.HOST, servers.host_file), (Source.USER, servers.user_file)]
    if project is not None:
        paths.append((Source.PROJECT, project / PROJECT_FILE))
    from_files = combine(
        *await asyncio.gather(*(_load_file(source, path) for source, path in paths)),
        load((), client_servers),
    )
    inline = tuple(
        ServerEntry(name=name, source=Source.HOST, origin=INLINE_ORIGIN, value=value)
        for name, value in inputs.inline_servers.items()
    )
    approvals = await store.read(lambda tx: tx.approvals(SERVER_KEY_PREFIX))
    mounts = read_mounts()
    policy = ResolvePolicy(
        builtins=tuple(builtin.spec for builtin in inputs.builtins if builtin.is_offered_to(context)),
        reserved_names=frozenset(builtin.spec.name for builtin in inputs.builtins),
        approved=frozenset(approval.content_hash for approval in approvals),
        restrictions=_restrictions(workspace),
        env_overrides=workspace.env if workspace is not None else {},
        aliases=inputs.settings.aliases,
        confinement=ConfinePolicy(
            roots=context.roots,
            quota=workspace.quota if workspace is not None else Quota(),
            sandbox_problem=inputs.sandbox_problem,
            protected=folders_hidden_from_sandboxes(inputs.settings),
            approved_folders=frozenset(with_aliases(await store.read(approved_program_folders), mounts)),
            own_code=with_aliases(OWN_CODE, mounts),
            bytecode_folder=str(inputs.settings.data_dir / BYTECODE_FOLDER),
            allowed_private_hosts=servers.reachable,
            environ=inputs.environ,
            extra_variables=servers.pass_on,
        ),
    )
    loaded = replace(from_files, entries=(*inline, *from_files.entries))
    return await _THREADS.run(_add_secrets, loaded, client_servers, owner=context.cwd), policy


async def _load_file(source: Source, path: Path) -> LoadedEntries:
    """Read and parse a config file in a thread. If its file system does not respond, only this file is left out."""
    try:
        return await run_with_file_timeout(load_file, source, path, path=str(path))
    except HoldfastError as error:
        reason = f"{error.message} Check that its file system responds, then open the session again."
        return LoadedEntries(refusals=(Refusal(server=str(path), stage=Stage.LOAD, reason=reason),))


def _add_secrets(loaded: LoadedEntries, client_servers: Iterable[Json]) -> LoadedEntries:
    """Find the secrets in the entries. Runs in a thread, because a large project file takes long."""
    trusted = (entry for entry in loaded.entries if entry.source in (Source.HOST, Source.USER))
    own = tuple(secret for entry in trusted for secret in secrets_in_json(entry.value))
    # Including values that are not valid entries.
    by_client = (secret for value in client_servers for secret in secrets_in_json(value))
    project = (entry for entry in loaded.entries if entry.source is Source.PROJECT)
    # The file of an unapproved project may contain secrets, which must not be stored. But the project must not be able
    # to hide words of its choice in the records. So its values are masked only if they look random.
    written = (secret for entry in project for secret in secrets_in_json(entry.value))
    by_project = islice(filter(looks_random, written), _MAX_PROJECT_SECRETS)
    return replace(loaded, secrets=(*own, *by_client, *by_project), own_secrets=own)


def _restrictions(workspace: Workspace | None) -> tuple[Restriction, ...]:
    if workspace is None:
        return ()
    return (
        Restriction(
            imposed_by=f"the workspace {workspace.slug}", servers=workspace.servers, tools=workspace.tools
        ),
    )
