"""Stage four: restrict servers and tools to what the caller, the workspace, the agent's definition and the client's token allow."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast.model.allowlist import ALLOW_ALL, Allowlist
from holdfast.model.mounts import is_within
from holdfast.model.resolution import Resolution, SessionWarning, Stage
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.tool_pattern import ToolPattern
from holdfast.resolve.server_entry import COPY_HELP

_NO_OVERRIDES: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """The servers and tools that a session may use."""

    imposed_by: str
    """Where the restriction comes from, for messages: `the workspace my-project`."""
    servers: Allowlist = ALLOW_ALL
    tool_names: Allowlist = ALLOW_ALL
    """Names of tools without their server. They apply to the tools of all servers."""
    patterns: tuple[ToolPattern, ...] | None = None
    """Only tools that match one of these patterns are allowed; None allows all."""
    is_stored: bool = False
    """Whether it is stored with the session, and applies again when the session is resumed."""


def select(
    resolution: Resolution,
    *restrictions: Restriction,
    env_overrides: Mapping[str, Mapping[str, str]] = _NO_OVERRIDES,
) -> Resolution:
    """Keep the servers and tools that every restriction allows, then set the workspace's variables for each server.

    Servers of projects and clients do not get these variables: the author of their entry chooses its name, and could choose the
    name of a server whose variables contain secrets.
    """
    for restriction in restrictions:
        resolution = _restrict(resolution, restriction)
    if not env_overrides:
        return resolution
    servers: list[ServerSpec] = []
    warnings: list[SessionWarning] = []
    for server in resolution.servers:
        overrides = env_overrides.get(server.name)
        if not overrides or not isinstance(server.transport, Stdio):
            servers.append(server)
        elif server.source in (Source.PROJECT, Source.CLIENT):
            servers.append(server)
            text = (
                f"It does not get the workspace's variables for {server.name}, because its entry comes from a {server.source}. "
                f"To use them, {COPY_HELP}."
            )
            warnings.append(SessionWarning(server=server.name, stage=Stage.SELECT, text=text))
        else:
            env = {**server.transport.env, **overrides}
            servers.append(replace(server, transport=replace(server.transport, env=env)))
    return replace(resolution, servers=tuple(servers), warnings=(*resolution.warnings, *warnings))


def refuse_outside_folders(resolution: Resolution, cwd: str) -> Resolution:
    """Refuse the servers whose `folders` do not contain the session's folder."""

    def why_refused(server: ServerSpec) -> str | None:
        folders = server.folders
        if not folders or any(is_within(cwd, folder) for folder in folders):
            return None
        return f'It is only for sessions in {", ".join(folders)}. To use it here, add this folder to its "folders".'

    return resolution.refuse_if(why_refused, stage=Stage.SELECT)


def _restrict(resolution: Resolution, restriction: Restriction) -> Resolution:
    patterns = restriction.patterns

    def why_refused(server: ServerSpec) -> str | None:
        if not restriction.servers.allows(server.name):
            return f"It is not among the servers that {restriction.imposed_by} allows."
        if patterns is not None and not any(pattern.matches_server(server.name) for pattern in patterns):
            return f"None of its tools is allowed by {restriction.imposed_by}."
        return None

    def restrict(server: ServerSpec) -> ServerSpec:
        groups = server.tool_patterns if patterns is None else (*server.tool_patterns, patterns)
        return replace(server, tools=server.tools.intersect(restriction.tool_names), tool_patterns=groups)

    kept = resolution.refuse_if(why_refused, stage=Stage.SELECT)
    return replace(kept, servers=tuple(map(restrict, kept.servers)))
