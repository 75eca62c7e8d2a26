"""The interface of the two sandbox backends, and `make_sandbox`, which creates one of them."""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.model.changeable_roots import ChangeableRoots
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.guard_watch import GuardedRoot
from holdfast.sandbox.keeper.spawn_request import SpawnRequest
from holdfast.sandbox.package_watch import PackageRoots

_RETRY_SECONDS = 5.0
_RETRY_FACTOR = 10  # a check that took 3 seconds is repeated after 30 at the earliest


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a sandbox works here; if not, why, and what to do about it."""

    works: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedProcess:
    """A confined process, ready to be started."""

    request: SpawnRequest
    resources: ExitStack
    """Closes the descriptors that are passed to the process. Close it once the process has started, or if it is not started."""
    ready_fd: int | None = None
    """The host's end of a pipe: bubblewrap writes the pid of the sandbox's process to it, as JSON. If it closes the pipe
    without writing, the set-up failed."""
    egress_channel: socket.socket | None = None
    """The socket on which the sandbox sends the listening socket for its egress proxy. None without granted hosts."""
    wait_and_check: Callable[[int], bool] | None = None
    """Waits until the sandbox with this pid is set up, and compares its mounts with the plan. Returns False if the sandbox has
    ended; raises if a mount differs. Blocks. See `MountPlan.wait_and_check`."""
    start_fd: int | None = None
    """The host's end of another pipe: bubblewrap executes the server once something is written to it, or once it is closed."""
    guarded_roots: tuple[GuardedRoot, ...] = ()
    """The roots to watch while the server runs. `after_exit` closes them."""
    packages: PackageRoots = field(default_factory=PackageRoots)
    """Where packages may be installed while the server runs."""
    visible: tuple[str, ...] = ()
    """The host's paths that are mounted in the sandbox. A container also has the files of its image, which are not listed."""
    after_setup: ExitStack = field(default_factory=ExitStack)
    """What to close once the sandbox is set up or has failed. Closing it blocks."""
    after_exit: ExitStack = field(default_factory=ExitStack)
    """What to close once no process of the server is left, or if it is not started. Closing it blocks."""


class SandboxBackend(Protocol):
    """Confines processes: with bubblewrap, or in containers."""

    @property
    def name(self) -> str:
        """The name to show to users."""
        ...

    async def check(self) -> Availability:
        """Test whether the backend works on this machine. A success is cached for good, a failure as `CachedCheck` says."""
        ...

    def prepare(self, spec: ProcessSpec) -> PreparedProcess:
        """Build the request that starts this process confined. `spec.confinement` must be set. Blocks: call it in a thread."""
        ...

    def program_paths(self, spec: ProcessSpec) -> tuple[str, ...]:
        """The paths, outside of the roots and of the system folders, that would be mounted for the program of this process. Blocks."""
        ...


class CachedCheck:
    """Caches the result of a backend's `check`. A success is cached for good. A failure is cached for ten times as long as the check took, at least 5 seconds: its cause may pass."""

    def __init__(self, check: Callable[[], Awaitable[Availability]]) -> None:
        self._check = check
        self._lock = asyncio.Lock()
        self._result: Availability | None = None
        self._check_again = 0.0

    async def result(self) -> Availability:
        """The result of the last check, or of a new one."""
        async with self._lock:
            if self._result is None or (not self._result.works and time.monotonic() > self._check_again):
                begun = time.monotonic()
                self._result = await self._check()
                now = time.monotonic()
                self._check_again = now + max(_RETRY_SECONDS, _RETRY_FACTOR * (now - begun))
        return self._result


def make_sandbox(
    engine: str = "",
    image: str = "",
    *,
    keep_in: Path | None = None,
    changeable_roots: ChangeableRoots | None = None,
) -> SandboxBackend:
    """Create a container sandbox if `engine` (`podman` or `docker`) is given, else a bubblewrap sandbox. Does not test whether it works.

    `keep_in` is only for containers: the data folder whose sessions keep their containers; None if containers are not kept.
    `changeable_roots` is only for bubblewrap: the stored list of the folders that confined servers could change.
    """
    if engine:
        from holdfast.sandbox.container.container import ContainerSandbox

        return ContainerSandbox(engine=engine, image=image, keep_in=keep_in)
    from holdfast.sandbox.bwrap.bwrap import BwrapSandbox

    return BwrapSandbox(changeable_roots=changeable_roots)


def open_memory_file(content: bytes, resources: ExitStack) -> int:
    """Create an anonymous file with this content. Return its descriptor, which `resources` closes."""
    fd = os.memfd_create("holdfast")
    resources.callback(os.close, fd)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
