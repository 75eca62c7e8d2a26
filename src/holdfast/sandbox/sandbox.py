"""Reduced power: what any way of confining a server has in common, and which one this machine has."""

import socket
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.launch import Launch
from holdfast.sandbox.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a sandbox works here; if not, why, and what to do about it."""

    works: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A confined program, ready to be executed."""

    program: Program
    opened: ExitStack
    """Closes what was opened for the program: it is the program's own once that has started, or is not needed."""
    stands: int | None = None
    """Where the sandbox writes something as soon as its walls stand; a plain end means that they do not."""
    bridge: socket.socket | None = None
    """Where the listener for the network within the walls arrives."""


class Sandbox(Protocol):
    """A way of confining programs."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    async def check(self) -> Availability:
        """Whether it works here: tried for real once, and remembered."""
        ...

    def prepare(self, launch: Launch) -> Prepared:
        """Turn a launch with walls into a program to execute. It looks at files, so it runs in a thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The sandbox of this machine, or why there is none."""

    sandbox: Sandbox | None
    why_not: str = ""


async def available(engine: str = "", image: str = "") -> Found:
    """Choose: containers where an engine (`podman`, `docker`) is configured, else bubblewrap."""
    sandbox = configured(engine, image)
    found = await sandbox.check()
    return Found(sandbox=sandbox) if found.works else Found(sandbox=None, why_not=found.reason)


def configured(engine: str = "", image: str = "") -> Sandbox:
    """The sandbox that the settings ask for, whether it works or not."""
    if engine:
        from holdfast.sandbox.container import Container

        return Container(engine=engine, image=image)
    from holdfast.sandbox.bwrap import Bwrap

    return Bwrap()
