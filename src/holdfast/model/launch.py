"""How a local server is started, and within what walls."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much of the machine one confined server may use."""

    memory_bytes: int = 2 * 1024**3
    processes: int = 128
    file_bytes: int = 1024**3
    descriptors: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The walls: folders it may write, hosts it may reach (none by default), and its quota."""

    roots: tuple[str, ...] = ()
    """Folders it may read and write, by their real paths: no part of one is a symbolic link."""
    readable: tuple[str, ...] = ()
    """What else it may read: the folder of a script, say, on the word of the host or the user."""
    hidden: tuple[str, ...] = ()
    """Folders that are empty for it even inside a root: where the host keeps its own keys and memory."""
    network: tuple[str, ...] = ()
    """Hosts it may reach, as `host` or `host:port`."""
    reachable: tuple[str, ...] = ()
    """Which of them may be private or local: only the host's own config says so."""
    quota: Quota = Quota()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program with its whole environment: nothing is added to it by whoever starts it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False, hash=False)
    cwd: str
    confinement: Confinement | None = None
