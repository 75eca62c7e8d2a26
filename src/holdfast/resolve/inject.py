"""Stage five: set the session's context in the environment of local servers.

Other servers get the context in other ways: shared servers (`lifetime: host`) and remote servers with each request, in-process
servers in memory. If an entry itself sets a context variable or header, its value is removed.
"""

from collections.abc import Mapping
from dataclasses import replace

from holdfast.model.context import (
    CONTEXT_HEADER,
    CONTEXT_VARIABLES,
    SHARED_VARIABLE,
    WORKSPACE_PATH_VARIABLE,
    SessionContext,
    context_env,
)
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.reserved_variables import is_holdfast_variable
from holdfast.model.resolution import Resolution, SessionWarning, Stage
from holdfast.model.server import Http, InProcess, Lifetime, ServerSpec, Source, Sse, Stdio
from holdfast.model.trust import Trust


def inject(
    resolution: Resolution, context: SessionContext, aliases: ContextAliases = NO_ALIASES
) -> Resolution:
    """Set the context variables. Ignore those that an entry sets itself, and warn about them once for each server."""
    context_vars = _context_variables(context, aliases)
    lowered = replace(context, trust_level=Trust.SANDBOXED)
    confined_vars = _context_variables(lowered, aliases) if lowered != context else context_vars
    alias_names = {name.upper() for name in aliases.variables}
    servers: list[ServerSpec] = []
    warnings: list[SessionWarning] = []
    for server in resolution.servers:
        variables = confined_vars if server.always_confined else context_vars
        injected, ignored = _inject_server(server, variables, alias_names)
        servers.append(injected)
        if ignored:
            text = f"Its entry sets {', '.join(ignored)}, which only the host may set. The values in the entry are ignored."
            warnings.append(SessionWarning(server=server.name, stage=Stage.INJECT, text=text))
    return replace(resolution, servers=tuple(servers), warnings=(*resolution.warnings, *warnings))


def _context_variables(context: SessionContext, aliases: ContextAliases) -> dict[str, str]:
    path = {WORKSPACE_PATH_VARIABLE: context.workspace_path} if context.workspace_path else {}
    return {**aliases.env(context), **context_env(context), **path}


def _inject_server(
    server: ServerSpec, context_vars: Mapping[str, str], alias_names: set[str]
) -> tuple[ServerSpec, list[str]]:
    match server.transport:
        case Stdio() as stdio:
            ignored = sorted(
                name
                for name in stdio.env
                if _is_host_only(name, server.source) or name.upper() in alias_names
            )
            env = {name: value for name, value in stdio.env.items() if name not in ignored}
            env |= {SHARED_VARIABLE: "1"} if server.lifetime is Lifetime.HOST else context_vars
            return replace(server, transport=replace(stdio, env=env)), ignored
        case Http() | Sse() as remote:
            ignored = sorted(name for name in remote.headers if name.lower() == CONTEXT_HEADER.lower())
            headers = {name: value for name, value in remote.headers.items() if name not in ignored}
            return replace(server, transport=replace(remote, headers=headers)), ignored
        case InProcess():
            return server, []


def _is_host_only(name: str, source: Source) -> bool:
    """Whether an entry from this source may not set the variable: one of the context or, for projects and clients, any of Holdfast's."""
    if source in (Source.PROJECT, Source.CLIENT):
        return is_holdfast_variable(name)
    return name.upper() in CONTEXT_VARIABLES
