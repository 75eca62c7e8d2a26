"""A registered folder, and what a session in it may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from holdfast.model.allowlist import ALLOW_ALL, Allowlist
from holdfast.model.permission import NO_RESTRICTION, PermissionRestriction
from holdfast.model.quota import DEFAULT_QUOTA, Quota
from holdfast.model.trust import Trust

_NO_ENV: Mapping[str, Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A registered folder: its slug, the highest trust of its sessions, and the servers and tools they may use."""

    slug: str
    name: str
    path: str
    trust: Trust = Trust.SANDBOXED
    servers: Allowlist = ALLOW_ALL
    tools: Allowlist = ALLOW_ALL
    permission: PermissionRestriction = NO_RESTRICTION
    quota: Quota = DEFAULT_QUOTA
    env: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: _NO_ENV, repr=False, hash=False)
    """Environment variables for servers, by server name."""
    model: str | None = None
    """The model of its sessions, if neither the client nor the agent's definition names one."""
