"""Stage six: the walls around what is not trusted, or no start at all."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from urllib.parse import urlsplit

from holdfast.model.address import why_forbidden
from holdfast.model.launch import Confinement, Quota
from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import InProcess, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.environment import confined, passed_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """What the host knows when it builds them: the session's folders, its quota, and what stops it."""

    roots: tuple[str, ...] = ()
    quota: Quota = field(default_factory=Quota)
    no_sandbox: str = ""
    """Why nothing can be confined on this machine, and what to install; empty where it can."""
    off_limits: tuple[str, ...] = ()
    """Holdfast's own folders: no confined server may have one of them within its walls."""
    reachable: tuple[str, ...] = ()
    """Private hosts that the host's config allows all the same."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    pass_on: Collection[str] = ()


def confine(resolution: Resolution, trust: Trust, walls: Walls) -> Resolution:
    """Confine every local server of a sandboxed session; refuse what cannot be confined and where none may go."""
    kept = resolution.sift(lambda server: _objection(server, trust, walls), stage=Stage.CONFINE)
    return replace(kept, servers=tuple(_walled(server, trust, walls) for server in kept.servers))


def _objection(server: ServerSpec, trust: Trust, walls: Walls) -> str | None:
    if isinstance(server.transport, Stdio):
        if trust is Trust.SANDBOXED and walls.no_sandbox:
            return f"This session is sandboxed, and no sandbox works here. {walls.no_sandbox}"
        return _overlap(walls) if trust is Trust.SANDBOXED else None
    if isinstance(server.transport, InProcess):
        return _overlap(walls) if trust is Trust.SANDBOXED else None
    if trust is Trust.DIRECT and server.source is not Source.CLIENT:
        return None
    host = urlsplit(server.transport.url).hostname or ""
    why = why_forbidden(host)
    if why is None or host in walls.reachable:
        return None
    return f"{host} is {why}, which this session may not reach. The host's settings can allow it: servers.reachable."


def _overlap(walls: Walls) -> str | None:
    for root in map(PurePath, walls.roots):
        for own in map(PurePath, walls.off_limits):
            if root == own or root in own.parents or own in root.parents:
                return f"{root} holds Holdfast's own files ({own}). Open the session in a folder of its own."
    return None


def _walled(server: ServerSpec, trust: Trust, walls: Walls) -> ServerSpec:
    if not isinstance(server.transport, Stdio):
        return server
    stdio = server.transport
    if trust is Trust.DIRECT:
        env = {**passed_on(walls.environ, walls.pass_on), **stdio.env}
        return replace(server, transport=replace(stdio, env=env))
    env = {**confined(walls.environ), **stdio.env}
    confinement = Confinement(
        roots=walls.roots,
        readable=stdio.readable,
        network=stdio.network,
        reachable=walls.reachable,
        quota=walls.quota,
    )
    return replace(server, transport=replace(stdio, env=env), confinement=confinement)
