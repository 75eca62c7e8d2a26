"""Run all stages in order: from entries as they are written to servers that may be started."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from holdfast.model.context import SessionContext
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.resolution import Resolution
from holdfast.model.server import ServerSpec
from holdfast.model.worker_threads import WorkerThreads
from holdfast.resolve.admit import NO_ANSWERS, ServerAnswers, admit
from holdfast.resolve.confine import ConfinePolicy, confine
from holdfast.resolve.expand import expand_servers
from holdfast.resolve.inject import inject
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.select import Restriction, refuse_outside_folders, select
from holdfast.resolve.validate import validate

_THREADS = WorkerThreads("resolve", threads=4, per_owner=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvePolicy:
    """The rules and facts that the stages apply: settings, workspaces and approvals. Nothing in it comes from a model."""

    builtins: tuple[ServerSpec, ...] = ()
    reserved_names: Collection[str] = ()
    """The names of all built-in servers, including those that this session does not get."""
    answers: ServerAnswers = NO_ANSWERS
    """The user's answers about projects' servers."""
    restrictions: tuple[Restriction, ...] = ()
    env_overrides: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]], repr=False
    )
    """The variables that the workspace sets for servers, by the name of the server."""
    aliases: ContextAliases = NO_ALIASES
    confinement: ConfinePolicy = field(default_factory=ConfinePolicy)


async def resolve_in_thread(
    loaded: LoadedEntries, context: SessionContext, policy: ResolvePolicy
) -> Resolution:
    """Run `resolve`. If it may take long, as for a large project file, it runs in a thread."""
    if loaded.is_quick:
        return resolve(loaded, context, policy)
    return await _THREADS.run(resolve, loaded, context, policy, owner=context.cwd)


def resolve(loaded: LoadedEntries, context: SessionContext, policy: ResolvePolicy) -> Resolution:
    """Decide which servers a session gets and which are refused. Reads no files except servers' commands called `python` or `node`, which may be scripts of a version manager.

    Variables are expanded after admission, because an entry that is not approved must not read the host's environment.
    """
    trust = context.trust_level
    resolution = validate(loaded, builtins=policy.builtins, reserved_names=policy.reserved_names)
    if not resolution.servers:
        return resolution
    resolution = admit(resolution, trust, policy.answers)
    resolution = expand_servers(resolution, policy.confinement.environ)
    resolution = refuse_outside_folders(resolution, context.cwd)
    resolution = select(resolution, *policy.restrictions, env_overrides=policy.env_overrides)
    resolution = inject(resolution, context, policy.aliases)
    return confine(resolution, trust, policy.confinement)
