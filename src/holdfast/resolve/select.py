"""Stage four: restrict servers and tools to what the workspace and the agent's definition allow."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast.model.allowlist import ALLOW_ALL, Allowlist
from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import ServerSpec, Stdio

_NO_OVERRIDES: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """The servers and tools that a session may use."""

    imposed_by: str
    """For messages: `the workspace my-project`."""
    servers: Allowlist = ALLOW_ALL
    tools: Allowlist = ALLOW_ALL


def select(
    resolution: Resolution,
    *restrictions: Restriction,
    env_overrides: Mapping[str, Mapping[str, str]] = _NO_OVERRIDES,
) -> Resolution:
    """Keep the servers and tools that every restriction allows, then set the variables that the workspace overrides."""
    for restriction in restrictions:
        resolution = _restrict(resolution, restriction)
    return replace(
        resolution, servers=tuple(_override_env(server, env_overrides) for server in resolution.servers)
    )


def _restrict(resolution: Resolution, restriction: Restriction) -> Resolution:
    kept = resolution.refuse_if(
        lambda server: (
            None
            if restriction.servers.allows(server.name)
            else f"It is not among the servers that {restriction.imposed_by} allows."
        ),
        stage=Stage.SELECT,
    )
    servers = tuple(
        replace(server, tools=server.tools.intersect(restriction.tools)) for server in kept.servers
    )
    return replace(kept, servers=servers)


def _override_env(server: ServerSpec, env_overrides: Mapping[str, Mapping[str, str]]) -> ServerSpec:
    overrides = env_overrides.get(server.name)
    if not overrides or not isinstance(server.transport, Stdio):
        return server
    return replace(server, transport=replace(server.transport, env={**server.transport.env, **overrides}))
