"""Stage five: set the session's context in the environment of local servers.

A server that sessions share (`lifetime: host`) belongs to no session, so it gets no context here. Remote servers get the
context with each request and in-process servers in memory. What an entry claims about the context is removed.
"""

from collections.abc import Mapping
from dataclasses import replace

from holdfast.model.context import (
    CONTEXT_HEADER,
    CONTEXT_VARIABLES,
    SHARED_VARIABLE,
    SessionContext,
    context_env,
)
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.reserved_variables import is_holdfast_variable
from holdfast.model.resolution import Resolution, SessionWarning, Stage
from holdfast.model.server import Http, InProcess, Lifetime, ServerSpec, Source, Sse, Stdio


def inject(
    resolution: Resolution, context: SessionContext, aliases: ContextAliases = NO_ALIASES
) -> Resolution:
    """Set the context variables. If an entry sets any itself, ignore them and add one warning for the server."""
    context_vars = {**aliases.env(context), **context_env(context)}
    alias_names = {name.upper() for name in aliases.variables}
    servers: list[ServerSpec] = []
    warnings: list[SessionWarning] = []
    for server in resolution.servers:
        injected, ignored = _inject_server(server, context_vars, alias_names)
        servers.append(injected)
        if ignored:
            text = f"Its entry sets {', '.join(ignored)}, which only the host may set. The values in the entry are ignored."
            warnings.append(SessionWarning(server=server.name, stage=Stage.INJECT, text=text))
    return replace(resolution, servers=tuple(servers), warnings=(*resolution.warnings, *warnings))


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
    """Whether only the host may set the variable. Projects and clients may not configure Holdfast either."""
    if source in (Source.PROJECT, Source.CLIENT):
        return is_holdfast_variable(name)
    return name.upper() in CONTEXT_VARIABLES
