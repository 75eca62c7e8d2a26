"""The whole way from what was written to what may run, in one place."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from holdfast.model.aliases import NO_ALIASES, Aliases
from holdfast.model.context import SessionContext
from holdfast.model.resolution import Resolution
from holdfast.model.server import ServerSpec
from holdfast.resolve.admit import admit
from holdfast.resolve.confine import Walls, confine
from holdfast.resolve.entry import Loaded
from holdfast.resolve.inject import inject
from holdfast.resolve.select import Narrowing, select
from holdfast.resolve.validate import validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the host decides with: all of it comes from settings, workspaces and approvals, none from the model."""

    builtins: tuple[ServerSpec, ...] = ()
    reserved: Collection[str] = ()
    """The names of all built-in servers, also of those that this session has no use for."""
    approved: Collection[str] = ()
    narrowings: tuple[Narrowing, ...] = ()
    overrides: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]], repr=False
    )
    aliases: Aliases = NO_ALIASES
    walls: Walls = field(default_factory=Walls)


def resolve(loaded: Loaded, context: SessionContext, policy: Policy) -> Resolution:
    """Who stands and who fell, for one session. Nothing is started, read or asked here."""
    trust = context.trust_level
    resolution = validate(
        loaded, builtins=policy.builtins, reserved=policy.reserved, environ=policy.walls.environ
    )
    resolution = admit(resolution, trust, policy.approved)
    resolution = select(resolution, *policy.narrowings, env=policy.overrides)
    resolution = inject(resolution, context, policy.aliases)
    return confine(resolution, trust, policy.walls)
