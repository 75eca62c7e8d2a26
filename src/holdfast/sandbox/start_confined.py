"""Start a server in a sandbox, or refuse to start it."""

import asyncio
import contextlib
import os
from typing import Protocol

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.bwrap.egress_proxy import EgressProxy
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.spawn_request import SpawnRequest
from holdfast.sandbox.sandbox import PreparedProcess, Sandbox

_SETUP_SECONDS = 10.0
_STDERR_BYTES = 2000


class ProcessStarter(Protocol):
    """Starts processes and can end them: the keeper client, or process groups."""

    async def start(self, request: SpawnRequest) -> Child: ...


async def start_confined(starter: ProcessStarter, sandbox: Sandbox | None, spec: ProcessSpec) -> Child:
    """Start a server in the sandbox. If there is none, or it does not work, raise."""
    if sandbox is None:
        raise HoldfastError(
            codes.NO_SANDBOX,
            f"Could not start {_name(spec)!r}: it must be confined, and no sandbox works here. Run `holdfast doctor`.",
        )
    availability = await sandbox.check()
    if not availability.works:
        raise HoldfastError(
            codes.NO_SANDBOX, f"Could not start {_name(spec)!r}: it must be confined. {availability.reason}"
        )
    return await start_in_sandbox(starter, sandbox, spec)


async def start_in_sandbox(starter: ProcessStarter, sandbox: Sandbox, spec: ProcessSpec) -> Child:
    """Start a server in a sandbox without checking the sandbox first; return once it is set up."""
    prepared = await _prepare(sandbox, spec)
    proxy = EgressProxy(spec.confinement) if spec.confinement and prepared.egress_channel else None
    child: Child | None = None
    try:
        with prepared.resources:
            child = await _start(starter, sandbox, prepared.request)
        await _wait_until_ready(prepared, child)
        if proxy is not None and prepared.egress_channel is not None:
            async with asyncio.timeout(_SETUP_SECONDS):
                await proxy.open(prepared.egress_channel)
            child.on_gone(proxy.close)
    except BaseException as error:
        if proxy is not None:
            proxy.close()
        if child is not None:
            child.end_now()
            child.close()
        if isinstance(error, OSError):  # includes TimeoutError
            text = str(error) or "It was not ready in time."
            raise HoldfastError(codes.NO_SANDBOX, f"{sandbox.name} does not work. {text}") from None
        raise
    finally:
        _close_channels(prepared)
    return child


async def _prepare(sandbox: Sandbox, spec: ProcessSpec) -> PreparedProcess:
    """Prepare in a thread; if the caller is cancelled, close what the thread opened once it is done."""
    work = asyncio.get_running_loop().run_in_executor(None, sandbox.prepare, spec)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(_discard)
        raise
    except OSError as error:
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"Could not start {_name(spec)!r}: {error.filename or 'a file'} cannot be mounted in its sandbox: {error.strerror}.",
        ) from None


def _discard(work: "asyncio.Future[PreparedProcess]") -> None:
    if work.cancelled() or work.exception() is not None:
        return
    prepared = work.result()
    prepared.resources.close()
    _close_channels(prepared)


def _close_channels(prepared: PreparedProcess) -> None:
    if prepared.ready_fd is not None:
        os.close(prepared.ready_fd)
    if prepared.egress_channel is not None:
        prepared.egress_channel.close()


async def _start(starter: ProcessStarter, sandbox: Sandbox, request: SpawnRequest) -> Child:
    try:
        return await starter.start(request)
    except HoldfastError as error:
        raise HoldfastError(codes.NO_SANDBOX, f"{sandbox.name} does not start. {error.message}") from None


async def _wait_until_ready(prepared: PreparedProcess, child: Child) -> None:
    """Wait until the sandbox is set up. If it closes the pipe without writing, the server was not started."""
    if prepared.ready_fd is None:
        return
    received = b""
    async with asyncio.timeout(_SETUP_SECONDS):
        while True:
            await _wait_readable(prepared.ready_fd)
            data = os.read(prepared.ready_fd, 4096)
            if not data:
                break
            received += data
    if received:
        return
    await child.wait()
    stderr = _read_stderr(child)
    raise HoldfastError(codes.NO_SANDBOX, f"The sandbox could not be set up. {stderr}".rstrip())


def _read_stderr(child: Child) -> str:
    os.set_blocking(child.stderr.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        text = (child.stderr.read(_STDERR_BYTES) or b"").decode(errors="replace")
        return "Its output: " + " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return ""


async def _wait_readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _name(spec: ProcessSpec) -> str:
    return spec.argv[0] if spec.argv else ""
