"""The interface of the sandbox backends, and the choice between them."""

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

_RETRY_SECONDS = 5.0
_RETRY_FACTOR = 10  # a check that takes long is repeated less often


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
    """Descriptors that are passed to the process. Close them once it has started, or if it is not started."""
    ready_fd: int | None = None
    """The pipe from the sandbox. It contains the pid of the sandbox's process; if it is empty, the set-up failed."""
    egress_channel: socket.socket | None = None
    """Through this socket the sandbox sends the listening socket of its egress proxy."""
    wait_and_check: Callable[[int], bool] | None = None
    """Waits until the sandbox with this pid is set up, and raises if it is not as planned; see `MountPlan.wait_and_check`.
    False if the sandbox has ended. Blocks."""
    start_fd: int | None = None
    """The pipe to the sandbox. The server is executed once something is written to it, or once it is closed."""
    guarded_roots: tuple[GuardedRoot, ...] = ()
    """The roots to watch while the server runs. `after_exit` closes them."""
    visible: tuple[str, ...] = ()
    """The paths of the machine that the process sees."""
    after_setup: ExitStack = field(default_factory=ExitStack)
    """What to close once the sandbox is set up or has failed. Closing it blocks."""
    after_exit: ExitStack = field(default_factory=ExitStack)
    """What to close once no process of the server is left, or if it is not started. Closing it blocks."""


class SandboxBackend(Protocol):
    """A backend that confines processes."""

    @property
    def name(self) -> str:
        """The name to show to users."""
        ...

    async def check(self) -> Availability:
        """Test whether it works on this machine. A success is remembered; a failure is remembered for only a few seconds."""
        ...

    def prepare(self, spec: ProcessSpec) -> PreparedProcess:
        """Build the request that starts this process confined. `spec.confinement` must be set. Blocks: call it in a thread."""
        ...

    def program_paths(self, spec: ProcessSpec) -> tuple[str, ...]:
        """The paths outside of its roots and of the system that it would mount for the program of this process. Blocks."""
        ...


class CachedCheck:
    """Caches the result of a check. After a failure, it checks again some seconds later: the cause may have been brief."""

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
    """Create a container sandbox if `engine` (`podman` or `docker`) is given, else bubblewrap. Do not check it.

    `keep_in` is only for containers: the data folder of the sessions whose containers are kept; None if none are kept.
    `changeable_roots` is only for bubblewrap: the folders in which links never decide what is mounted.
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
