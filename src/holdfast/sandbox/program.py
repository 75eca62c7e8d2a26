"""What is really executed: a launch as it stands, or with walls around it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """A control group to make for one server below this one, with these limits."""

    parent: str
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the keeper executes. Descriptors arrive as 3, 4, 5 …; nothing else is inherited."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str
    descriptors: tuple[int, ...] = ()
    user: tuple[int, int] | None = None
    """The uid and gid to become; None to stay who we are."""
    cgroups: tuple[Cgroup, ...] = ()
    monitor: bool = False
    """Its first process only waits for the one within: SIGTERM is not for it."""
    first_to_go: bool = False
    """Whether the kernel, out of memory, should end this before anything else."""
    farewell: tuple[str, ...] = ()
    """What to run when all of it has ended, however it ended."""


def direct(launch: Launch) -> Program:
    """The launch as it stands: a direct server loses nothing and gains nothing."""
    return Program(argv=launch.argv, env=launch.env, cwd=launch.cwd)
