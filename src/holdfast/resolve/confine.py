"""Stage six: confine the servers that do not have the user's rights, and build each server's environment."""

import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from urllib.parse import urlsplit

from holdfast.model.blocked_addresses import how_to_allow, is_loopback_host, why_host_blocked
from holdfast.model.context import WORKSPACE_PATH_VARIABLE
from holdfast.model.process import Confinement
from holdfast.model.quota import Quota
from holdfast.model.resolution import Resolution, SessionWarning, Stage
from holdfast.model.server import InProcess, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.model.visible_text import display_path
from holdfast.resolve.approved_variables import PYTHON_PATH, absolute_python_path
from holdfast.resolve.command_words import named_scripts, runs_absolute_script, runs_relative_script
from holdfast.resolve.relative_code import loads_relative_code
from holdfast.resolve.server_environment import confined_environment, direct_environment
from holdfast.resolve.version_managers import is_interpreter_itself
from holdfast.sandbox.read_only_names import top_level_names

BYTECODE_VARIABLE = "PYTHONPYCACHEPREFIX"
"""The variable that names the only folder in which Python looks for compiled modules. Project servers get it."""
_CONFINED_BYTECODE_FOLDER = "/run/python-cache"  # each sandbox has a /run of its own, and no root lies in it


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfinePolicy:
    """The rules and facts that the stage applies, about the session, the machine and the settings."""

    roots: tuple[str, ...] = ()
    quota: Quota = field(default_factory=Quota)
    sandbox_problem: str = ""
    """Why the sandbox does not work on this machine, and what to install; empty if it works."""
    protected: tuple[str, ...] = ()
    """Holdfast's own files and folders, which no confined server may see."""
    approved_folders: frozenset[str] = frozenset()
    """The folders of programs that were approved with the user's rights. The programs run unconfined in direct sessions, so nothing in a
    sandboxed session may add or change a file in these folders."""
    package_folder: str = ""
    """Where the packages of confined servers are kept. No root of a confined server may overlap with this folder: the server could
    change the packages."""
    holdfast_code: tuple[str, ...] = ()
    """The files and folders that this Holdfast process executes and imports. The sandbox makes them read-only."""
    unconfined_programs: tuple[str, ...] = ()
    """The programs of the application's, the operator's and the user's servers, and the folders of the `PATH`, that lie in the roots. The sandbox
    makes them read-only."""
    bytecode_folder: str = ""
    """Where Python keeps the compiled modules of project servers. Not in `__pycache__`, where a confined server could replace them."""
    allowed_private_hosts: tuple[str, ...] = ()
    """Hosts in private networks that the settings allow (`servers.reachable`)."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The host's environment."""
    extra_variables: Collection[str] = ()
    """Names of further variables that direct servers get from the host's environment (`servers.pass_on`)."""


def confine(resolution: Resolution, trust: Trust, policy: ConfinePolicy) -> Resolution:
    """Confine the local servers of a sandboxed session, and those that are confined in every session.

    Refuse servers that cannot be confined or may not be reached.
    """
    kept = resolution.refuse_if(
        lambda server: _why_refused(server, server.trust_in(trust), policy), stage=Stage.CONFINE
    )
    servers = tuple(_apply_confinement(server, server.trust_in(trust), policy) for server in kept.servers)
    warnings = (warning for server in servers for warning in _warnings(server, policy))
    return replace(kept, servers=servers, warnings=(*kept.warnings, *warnings))


def _why_refused(server: ServerSpec, trust: Trust, policy: ConfinePolicy) -> str | None:
    if isinstance(server.transport, Stdio):
        if trust is Trust.SANDBOXED and policy.sandbox_problem:
            subject = "It may only run confined" if server.always_confined else "This session is sandboxed"
            return f"{subject}, and there is no working sandbox. {policy.sandbox_problem}"
        return _why_roots_overlap(policy) if trust is Trust.SANDBOXED else None
    if isinstance(server.transport, InProcess):
        return _why_roots_overlap(policy) if trust is Trust.SANDBOXED else None
    if trust is Trust.DIRECT and server.source is not Source.CLIENT:
        return None
    host = urlsplit(server.transport.url).hostname or ""
    if trust is Trust.DIRECT and is_loopback_host(host):
        return None  # the client of a direct session is the user's own program
    why = why_host_blocked(host)
    if why is None or host in policy.allowed_private_hosts:
        return None
    who = "It runs confined, so it" if server.always_confined else "This session"
    return f"{who} may not reach {host}: it is {why}. {how_to_allow(host)}"


def _why_roots_overlap(policy: ConfinePolicy) -> str | None:
    for root in map(PurePath, policy.roots):
        packages = (policy.package_folder,) if policy.package_folder else ()
        for path in map(PurePath, (*policy.protected, *packages)):
            if root == path or root in path.parents or path in root.parents:
                return (
                    f"{root} overlaps with Holdfast's own files ({path}). Open the session in another folder"
                    " (in a shell: --cwd FOLDER)."
                )
    return None


def _roots_for(server: ServerSpec, policy: ConfinePolicy) -> tuple[str, ...]:
    """The roots that a confined server gets.

    A project's server that was approved as confined gets only the roots in its project, because the approval named no other folder.
    """
    if server.source is not Source.PROJECT or not server.always_confined:
        return policy.roots
    project = PurePath(server.origin).parent
    return tuple(root for root in policy.roots if PurePath(root).is_relative_to(project))


def _without_hidden_workspace(env: Mapping[str, str], roots: tuple[str, ...]) -> Mapping[str, str]:
    """The variables, without the path of the workspace if the server cannot see that folder, because it is in none of the roots."""
    path = env.get(WORKSPACE_PATH_VARIABLE)
    if path is None or any(PurePath(path).is_relative_to(root) for root in roots):
        return env
    return {name: value for name, value in env.items() if name != WORKSPACE_PATH_VARIABLE}


def _read_only_roots(roots: tuple[str, ...], policy: ConfinePolicy) -> tuple[str, ...]:
    """Those of the roots that overlap with a folder of approved programs."""
    approved = [PurePath(folder) for folder in policy.approved_folders]
    return tuple(
        root
        for root, path in zip(roots, map(PurePath, roots), strict=True)
        if any(path == folder or path in folder.parents or folder in path.parents for folder in approved)
    )


def _warnings(server: ServerSpec, policy: ConfinePolicy) -> Iterator[SessionWarning]:
    if server.confinement is None:
        return
    for root in policy.roots:
        if root not in server.confinement.roots:
            text = (
                f"It cannot use {root}, which was added to the session: you approved it for {display_path(str(PurePath(server.origin).parent))}. "
                "To let it read that folder, run: "
                f"{shlex.join(['holdfast', 'servers', 'approve', server.name, '--confined', '--readable', root])}"
            )
            yield SessionWarning(server=server.name, stage=Stage.CONFINE, text=text)
    for root in server.confinement.roots:
        for name in sorted(top_level_names(root, policy.holdfast_code)):
            folder = root if name == "." else f"{root}/{name}"
            text = (
                f"It can read {folder} but not change it: Holdfast runs and imports code from there. To let it write "
                "there, install Holdfast elsewhere, and start it with python -P, so that it imports nothing from that folder."
            )
            yield SessionWarning(server=server.name, stage=Stage.CONFINE, text=text)
    for root in server.confinement.roots:
        for name in sorted(top_level_names(root, server.confinement.executed)):
            folder = root if name == "." else f"{root}/{name}"
            text = (
                f"It can read {folder} but not change it: the command of a server, or the PATH, names a path there, so programs "
                'there may run with your rights. If none does, add "confined": true to the entry of the server that names the path. '
                f"{_how_to_let_it_write(server)}"
            )
            yield SessionWarning(server=server.name, stage=Stage.CONFINE, text=text)
    for root in server.confinement.read_only:
        text = (
            f"It can read {root} but not change it: you approved a server that runs programs in this folder with your "
            f"rights. {_how_to_let_it_write(server)}"
        )
        yield SessionWarning(server=server.name, stage=Stage.CONFINE, text=text)


def _how_to_let_it_write(server: ServerSpec) -> str:
    """What to do so that the server can change a read-only folder. The server stays confined."""
    match server.source:
        case Source.PROJECT:
            words = ["holdfast", "servers", "approve", server.name, "--confined", "--writable", "."]
            return f"To let it write there, run: {shlex.join(words)}"
        case Source.CLIENT | Source.BUILTIN:
            return "It cannot be allowed to write there."
        case Source.APP | Source.OPERATOR | Source.USER:
            granted = server.transport.writable if isinstance(server.transport, Stdio) else ()
            names = json.dumps([*granted, "."])
            return f'To let it write there, write "writable": {names} in its entry in {display_path(server.origin) or "its configuration"}.'


def _apply_confinement(server: ServerSpec, trust: Trust, policy: ConfinePolicy) -> ServerSpec:
    if not isinstance(server.transport, Stdio):
        return server
    stdio = _with_start_folder(server, server.transport, policy)
    if trust is Trust.DIRECT or server.confines_what_it_runs:
        env = {**direct_environment(policy.environ, policy.extra_variables), **stdio.env}
        return replace(server, transport=replace(stdio, env=env))
    roots = _roots_for(server, policy)
    env = {**confined_environment(policy.environ), **_without_hidden_workspace(stdio.env, roots)}
    if policy.bytecode_folder and server.source is Source.PROJECT:
        # Not the host's folder, which the server cannot see, and whose path contains the user's name.
        env[BYTECODE_VARIABLE] = _CONFINED_BYTECODE_FOLDER
    may_change_programs = "." in stdio.writable
    confinement = Confinement(
        roots=roots,
        readable=stdio.readable,
        writable=stdio.writable,
        read_only=() if may_change_programs else _read_only_roots(roots, policy),
        executed=() if may_change_programs else policy.unconfined_programs,
        protected=policy.protected,
        network=stdio.network,
        # A client could name a script to choose which of the user's folders its server can read.
        scripts=None if server.source is Source.CLIENT else named_scripts((stdio.command, *stdio.args)),
        granted_paths=server.granted_paths,
        allowed_private_hosts=policy.allowed_private_hosts,
        quota=policy.quota,
    )
    return replace(server, transport=replace(stdio, env=env), confinement=confinement)


def _python_variables(server: ServerSpec, stdio: Stdio, policy: ConfinePolicy) -> dict[str, str]:
    """Where Python looks for the modules, and for the compiled modules, of a project's server."""
    variables: dict[str, str] = {}
    if stdio.module_folders:
        project = str(PurePath(server.origin).parent)
        variables[PYTHON_PATH] = absolute_python_path(stdio.module_folders, project)
    if policy.bytecode_folder:
        variables[BYTECODE_VARIABLE] = policy.bytecode_folder
    return variables


def _with_start_folder(server: ServerSpec, stdio: Stdio, policy: ConfinePolicy) -> Stdio:
    """Let a server start in an empty folder if it could otherwise run code that it finds in the session's folder.

    A server whose entry names a folder, or a script to run, starts in its usual folder. A project's server starts in its project,
    with the variables that say where Python looks for modules.
    """
    if server.source is Source.PROJECT:
        return replace(stdio, env={**stdio.env, **_python_variables(server, stdio, policy)})
    argv = (stdio.command, *stdio.args)
    may_start_in_folder = bool(stdio.cwd) or runs_relative_script(argv)
    if not may_start_in_folder and runs_absolute_script(argv):
        # A version manager's `python` or `node` would read in the session's folder which program to run.
        search_path = stdio.env.get("PATH") or policy.environ.get("PATH", "")
        may_start_in_folder = is_interpreter_itself(stdio.command, search_path)
        # Python and Node would load code from the session's folder if a variable names a relative path.
        env = {**direct_environment(policy.environ, policy.extra_variables), **stdio.env}
        may_start_in_folder &= not any(loads_relative_code(*variable) for variable in env.items())
    return replace(stdio, has_empty_folder=not may_start_in_folder)
