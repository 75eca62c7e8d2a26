"""Stage five: every local server gets the session's context, last, over whatever was there."""

from collections.abc import Mapping
from dataclasses import replace

from holdfast.model.aliases import NO_ALIASES, Aliases
from holdfast.model.carriers import CONTEXT_VARIABLES, HEADER, SHARED, context_env
from holdfast.model.context import SessionContext
from holdfast.model.resolution import Caution, Resolution, Stage
from holdfast.model.server import Http, InProcess, Lifetime, ServerSpec, Source, Sse, Stdio
from holdfast.model.variables import is_context_variable


def inject(resolution: Resolution, context: SessionContext, aliases: Aliases = NO_ALIASES) -> Resolution:
    """Tell every server who is calling. What an entry claimed to know about that is overwritten, and noted once."""
    own = {**aliases.env(context), **context_env(context)}
    other_names = {name.upper() for name in aliases.variables}
    servers: list[ServerSpec] = []
    cautions: list[Caution] = []
    for server in resolution.servers:
        told, claimed = _told(server, own, other_names)
        servers.append(told)
        if claimed:
            text = f"Its entry sets {', '.join(claimed)}, which only the host decides; the host's values are in force."
            cautions.append(Caution(server=server.name, stage=Stage.INJECT, text=text))
    return replace(resolution, servers=tuple(servers), cautions=(*resolution.cautions, *cautions))


def _told(server: ServerSpec, own: Mapping[str, str], other_names: set[str]) -> tuple[ServerSpec, list[str]]:
    match server.transport:
        case Stdio() as stdio:
            claimed = sorted(
                name for name in stdio.env if _is_claim(name, server.source) or name.upper() in other_names
            )
            env = {name: value for name, value in stdio.env.items() if name not in claimed}
            env |= {SHARED: "1"} if server.lifetime is Lifetime.HOST else own
            return replace(server, transport=replace(stdio, env=env)), claimed
        case Http() | Sse() as remote:
            claimed = sorted(name for name in remote.headers if name.lower() == HEADER.lower())
            headers = {name: value for name, value in remote.headers.items() if name not in claimed}
            return replace(server, transport=replace(remote, headers=headers)), claimed
        case InProcess():
            return server, []


def _is_claim(name: str, source: Source) -> bool:
    """Nobody but the host says who is calling; a project or a client does not set Holdfast up either."""
    if source in (Source.PROJECT, Source.CLIENT):
        return is_context_variable(name)
    return name.upper() in CONTEXT_VARIABLES
