"""Stage four: restrict servers and tools to what the workspace and the agent's definition allow."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast.model.allowlist import ALLOW_ALL, Allowlist
from holdfast.model.resolution import Resolution, SessionWarning, Stage
from holdfast.model.server import ServerSpec, Source, Stdio

_NO_OVERRIDES: Mapping[str, Mapping[str, str]] = {}
_NOT_FOR_OTHERS = (
    "they are for servers of your own and the host's list only. To give them to it, copy its entry to your own servers "
    "file (the setting servers.user_file)."
)


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
    """Keep the servers and tools that every restriction allows, then set the variables that the workspace overrides.

    A project's or a client's server gets none: its author chose its name, and could choose one that has secrets here.
    """
    for restriction in restrictions:
        resolution = _restrict(resolution, restriction)
    servers: list[ServerSpec] = []
    warnings: list[SessionWarning] = []
    for server in resolution.servers:
        overrides = env_overrides.get(server.name)
        if not overrides or not isinstance(server.transport, Stdio):
            servers.append(server)
        elif server.source in (Source.PROJECT, Source.CLIENT):
            servers.append(server)
            text = f"It does not get the workspace's variables for {server.name}: {_NOT_FOR_OTHERS}"
            warnings.append(SessionWarning(server=server.name, stage=Stage.SELECT, text=text))
        else:
            env = {**server.transport.env, **overrides}
            servers.append(replace(server, transport=replace(server.transport, env=env)))
    return replace(resolution, servers=tuple(servers), warnings=(*resolution.warnings, *warnings))


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
