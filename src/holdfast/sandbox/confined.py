"""Start a server behind walls, or not at all."""

import asyncio
import contextlib
import os
from typing import Protocol

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Launch
from holdfast.sandbox.child import Child
from holdfast.sandbox.egress import Egress
from holdfast.sandbox.program import Program
from holdfast.sandbox.sandbox import Prepared, Sandbox

_WALLS_SECONDS = 10.0
_LAST_WORDS = 2000


class Starter(Protocol):
    """Whoever starts programs and keeps hold of them."""

    async def start(self, program: Program) -> Child:
        """Start one."""
        ...


async def start_confined(holds: Starter, sandbox: Sandbox | None, launch: Launch) -> Child:
    """Start a launch with walls in the sandbox; where there is none, refuse."""
    if sandbox is None:
        raise HoldfastError(
            codes.NO_SANDBOX,
            f"Could not start {_name(launch)!r}: it is to be confined, and no sandbox works here.",
        )
    found = await sandbox.check()
    if not found.works:
        raise HoldfastError(
            codes.NO_SANDBOX, f"Could not start {_name(launch)!r}: it is to be confined. {found.reason}"
        )
    return await raise_walls(holds, sandbox, launch)


async def raise_walls(holds: Starter, sandbox: Sandbox, launch: Launch) -> Child:
    """Start a launch in a sandbox, and return when its walls stand."""
    prepared = await _prepared(sandbox, launch)
    egress = Egress(launch.confinement) if launch.confinement and prepared.bridge else None
    child: Child | None = None
    try:
        with prepared.opened:
            child = await _started(holds, sandbox, prepared.program)
        await _wait_for_walls(prepared, child)
        if egress is not None and prepared.bridge is not None:
            async with asyncio.timeout(_WALLS_SECONDS):
                await egress.open(prepared.bridge)
            child.when_gone(egress.close)
    except BaseException as error:
        if egress is not None:
            egress.close()
        if child is not None:
            child.let_go()
            child.close()
        if isinstance(error, OSError):  # TimeoutError among them
            words = str(error) or "It did not come up in time."
            raise HoldfastError(codes.NO_SANDBOX, f"{sandbox.name} does not work. {words}") from None
        raise
    finally:
        if prepared.stands is not None:
            os.close(prepared.stands)
        if prepared.bridge is not None:
            prepared.bridge.close()
    return child


async def _prepared(sandbox: Sandbox, launch: Launch) -> Prepared:
    """Prepare in a thread; what a thread finishes for a caller that is gone is closed again."""
    work = asyncio.get_running_loop().run_in_executor(None, sandbox.prepare, launch)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(_discard)
        raise
    except OSError as error:
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"Could not start {_name(launch)!r}: {error.filename or 'a file'} cannot be shown to it: {error.strerror}.",
        ) from None


def _discard(work: "asyncio.Future[Prepared]") -> None:
    if work.cancelled() or work.exception() is not None:
        return
    prepared = work.result()
    prepared.opened.close()
    if prepared.stands is not None:
        os.close(prepared.stands)
    if prepared.bridge is not None:
        prepared.bridge.close()


async def _started(holds: Starter, sandbox: Sandbox, program: Program) -> Child:
    try:
        return await holds.start(program)
    except HoldfastError as error:
        raise HoldfastError(codes.NO_SANDBOX, f"{sandbox.name} does not start. {error.message}") from None


async def _wait_for_walls(prepared: Prepared, child: Child) -> None:
    """Wait for the sandbox's word. It has closed the pipe without one: there are no walls, and no server."""
    if prepared.stands is None:
        return
    said = b""
    async with asyncio.timeout(_WALLS_SECONDS):
        while True:
            await _readable(prepared.stands)
            word = os.read(prepared.stands, 4096)
            if not word:
                break
            said += word
    if said:
        return
    await child.wait()
    words = _last_words(child)
    raise HoldfastError(codes.NO_SANDBOX, f"The walls of the sandbox could not be put up. {words}".rstrip())


def _last_words(child: Child) -> str:
    os.set_blocking(child.stderr.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        words = (child.stderr.read(_LAST_WORDS) or b"").decode(errors="replace")
        return "It said: " + " ".join("".join(c if c.isprintable() else " " for c in words).split())
    return ""


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _name(launch: Launch) -> str:
    return launch.argv[0] if launch.argv else ""
