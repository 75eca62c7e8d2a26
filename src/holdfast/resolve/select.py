"""Stage four: what the workspace and the agent's definition leave of the servers and their tools."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast.model.choice import ALL, Choice
from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import ServerSpec, Stdio

_NO_OVERRIDES: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What somebody may use, and on whose word: `the workspace my-project`."""

    whose: str
    servers: Choice = ALL
    tools: Choice = ALL


def select(
    resolution: Resolution, *narrowings: Narrowing, env: Mapping[str, Mapping[str, str]] = _NO_OVERRIDES
) -> Resolution:
    """Keep what every narrowing allows; `env` holds the workspace's overrides of a server's environment."""
    for narrowing in narrowings:
        resolution = _narrowed(resolution, narrowing)
    return replace(resolution, servers=tuple(_overridden(server, env) for server in resolution.servers))


def _narrowed(resolution: Resolution, narrowing: Narrowing) -> Resolution:
    kept = resolution.sift(
        lambda server: (
            None
            if narrowing.servers.allows(server.name)
            else f"It is not among the servers of {narrowing.whose}."
        ),
        stage=Stage.SELECT,
    )
    servers = tuple(replace(server, tools=server.tools.narrowed(narrowing.tools)) for server in kept.servers)
    return replace(kept, servers=servers)


def _overridden(server: ServerSpec, env: Mapping[str, Mapping[str, str]]) -> ServerSpec:
    overrides = env.get(server.name)
    if not overrides or not isinstance(server.transport, Stdio):
        return server
    return replace(server, transport=replace(server.transport, env={**server.transport.env, **overrides}))
