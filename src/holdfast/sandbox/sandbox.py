"""The interface of the sandbox backends, and the choice between them."""

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.model.process import ProcessSpec
from holdfast.sandbox.guard_watch import GuardedRoot
from holdfast.sandbox.keeper.spawn_request import SpawnRequest


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
    """Descriptors opened for the process; close them once it has started, or if it is not started."""
    ready_fd: int | None = None
    """The sandbox writes here once it is set up; end of file without data means that the set-up failed."""
    egress_channel: socket.socket | None = None
    """The sandbox sends the listening socket of its egress proxy here."""
    finish_setup: Callable[[int], bool] | None = None
    """Waits until the sandbox of this pid is set up, and checks it. False if it has ended. Raises if it is not as planned. Blocks."""
    start_fd: int | None = None
    """The server is executed once something is written here, or once it is closed."""
    guarded_roots: tuple[GuardedRoot, ...] = ()
    """Watch them while the server runs. `after_exit` closes them."""
    after_setup: ExitStack = field(default_factory=ExitStack)
    """Close it once the sandbox is set up, or has failed. Blocks."""
    after_exit: ExitStack = field(default_factory=ExitStack)
    """Close it once no process of the server is left, or if it is not started."""


class Sandbox(Protocol):
    """A backend that confines processes."""

    @property
    def name(self) -> str:
        """Its name for users."""
        ...

    async def check(self) -> Availability:
        """Test whether it works on this machine. Later calls return the same result."""
        ...

    def prepare(self, spec: ProcessSpec) -> PreparedProcess:
        """Build the request that starts this process confined. `spec` needs a confinement. Blocks: call it in a thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedSandbox:
    """The sandbox of this machine, or the reason why there is none."""

    sandbox: Sandbox | None
    reason: str = ""


async def detect_sandbox(engine: str = "", image: str = "") -> DetectedSandbox:
    """Create the sandbox that the settings select, and check that it works."""
    sandbox = make_sandbox(engine, image)
    availability = await sandbox.check()
    if not availability.works:
        return DetectedSandbox(sandbox=None, reason=availability.reason)
    return DetectedSandbox(sandbox=sandbox)


def make_sandbox(engine: str = "", image: str = "") -> Sandbox:
    """Create a container sandbox if `engine` (`podman` or `docker`) is given, else bubblewrap. Does not check it."""
    if engine:
        from holdfast.sandbox.container.container import ContainerSandbox

        return ContainerSandbox(engine=engine, image=image)
    from holdfast.sandbox.bwrap.bwrap import BwrapSandbox

    return BwrapSandbox()


def open_memory_file(content: bytes, resources: ExitStack) -> int:
    """Create an anonymous file with this content. Return its descriptor, which `resources` closes."""
    fd = os.memfd_create("holdfast")
    resources.callback(os.close, fd)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
