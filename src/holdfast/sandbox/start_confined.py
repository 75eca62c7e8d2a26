"""Start a server in a sandbox, or refuse to start it."""

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from typing import Protocol

from holdfast.model import codes
from holdfast.model.confined_folders import ServersEndingError
from holdfast.model.descriptor_limit import descriptor_limit
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.bwrap.egress_proxy import EgressProxy
from holdfast.sandbox.guard_watch import GuardWatch
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.spawn_request import SpawnRequest
from holdfast.sandbox.package_watch import watch_packages
from holdfast.sandbox.sandbox import PreparedProcess, SandboxBackend
from holdfast.sandbox.view import SandboxView

_PREPARE_SECONDS = 10.0
_SETUP_SECONDS = 10.0
_OTHERS_END_SECONDS = (
    8.0  # a server without a guard is noticed after at most a second, but a host may be busy
)
_PAUSE_SECONDS = 0.1
_CLEANUP_SECONDS = 10.0
_STDERR_BYTES = 2000
# The most that the start of a server with one root needs. A start with several roots may need more.
_DESCRIPTORS_PER_START = 200
_THREADS = WorkerThreads("sandbox", threads=8, per_owner=2)
_cleanups: set[asyncio.Task[None]] = set()


class ProcessStarter(Protocol):
    """Starts processes: the keeper client, or process groups."""

    async def start(self, request: SpawnRequest) -> Child: ...


async def start_confined(
    starter: ProcessStarter, sandbox: SandboxBackend | None, spec: ProcessSpec, watch: GuardWatch
) -> Child:
    """Test whether the sandbox works, then start a server in it. Raise if there is no sandbox or if it does not work."""
    if sandbox is None:
        raise HoldfastError(
            codes.NO_SANDBOX,
            f"Could not start {_program(spec)!r}: it must be confined, but there is no working sandbox. Run `holdfast doctor`.",
        )
    availability = await sandbox.check()
    if not availability.works:
        raise HoldfastError(
            codes.NO_SANDBOX,
            f"Could not start {_program(spec)!r}: it must be confined, but the sandbox does not work. {availability.reason}",
        )
    return await start_confined_unchecked(starter, sandbox, spec, watch)


async def start_confined_unchecked(
    starter: ProcessStarter, sandbox: SandboxBackend, spec: ProcessSpec, watch: GuardWatch
) -> Child:
    """Start a server with a backend that is not tested first. Return once its sandbox is set up and compared with the plan.

    If other servers in its roots lack guards that it needs, wait until they have ended. `watch` kills the server if a guard in one of its roots vanishes.
    """
    loop = asyncio.get_running_loop()
    async with _slots.take(_owner(spec)):
        deadline = loop.time() + _OTHERS_END_SECONDS
        while True:
            try:
                return await _start_now(starter, sandbox, spec, watch)
            except ServersEndingError:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)  # without a thread: the cleanups of the others need one


async def _start_now(
    starter: ProcessStarter, sandbox: SandboxBackend, spec: ProcessSpec, watch: GuardWatch
) -> Child:
    prepared = await _prepare(sandbox, spec)
    clean_up = partial(_run_in_thread, prepared.after_exit, _owner(spec))
    view = SandboxView(prepared.visible)
    proxy = (
        EgressProxy(spec.confinement, on_refused=view.add_refused)
        if spec.confinement and prepared.egress_channel
        else None
    )
    child: Child | None = None
    try:
        with prepared.resources:
            child = await _start(starter, sandbox, prepared.request)
            child.on_gone(clean_up)
            child.view = view
        await _wait_until_ready(prepared, child, _owner(spec))
        watch.add(child, prepared.guarded_roots)
        watch_packages(child, prepared.packages)
        if proxy is not None and prepared.egress_channel is not None:
            async with asyncio.timeout(_SETUP_SECONDS):
                await proxy.open(prepared.egress_channel)
            child.on_gone(proxy.close)
    except BaseException as error:
        if proxy is not None:
            proxy.close()
        if child is not None:
            child.terminate()
            child.close()
            if prepared.start_fd is not None:  # closing it would start the server
                child.on_gone(partial(os.close, prepared.start_fd))
        else:
            if prepared.start_fd is not None:
                os.close(prepared.start_fd)
            clean_up()
        if isinstance(error, OSError):  # includes TimeoutError
            text = str(error) or f"it was not ready within {_SETUP_SECONDS:g} seconds"
            raise HoldfastError(
                codes.NO_SANDBOX, f"{sandbox.name} could not set up the sandbox: {text}."
            ) from None
        raise
    else:
        if prepared.start_fd is not None:
            os.close(prepared.start_fd)
    finally:
        _close_channels(prepared)
        _run_in_thread(prepared.after_setup, _owner(spec))
    return child


async def find_program_paths(sandbox: SandboxBackend, spec: ProcessSpec) -> tuple[str, ...]:
    """The paths that the sandbox would mount for a program, found in a thread."""
    try:
        async with asyncio.timeout(_PREPARE_SECONDS):
            return await _THREADS.run(sandbox.program_paths, spec, owner=_owner(spec))
    except TimeoutError:
        raise HoldfastError(
            codes.TIMEOUT,
            f"The files of {_program(spec)!r} could not be found within {_PREPARE_SECONDS:g} seconds."
            " Check that the file systems of its folders answer.",
        ) from None


async def wait_for_cleanups() -> None:
    """Wait, at most 10 seconds, until the cleanups of the servers that were started in this event loop are done."""
    loop = asyncio.get_running_loop()
    if mine := {task for task in _cleanups if task.get_loop() is loop}:
        await asyncio.wait(mine, timeout=_CLEANUP_SECONDS)


async def _prepare(sandbox: SandboxBackend, spec: ProcessSpec) -> PreparedProcess:
    """Prepare the process in a thread. If the caller stops waiting, close the opened files when the thread finishes."""
    work = asyncio.ensure_future(_THREADS.run(sandbox.prepare, spec, owner=_owner(spec)))
    try:
        async with asyncio.timeout(_PREPARE_SECONDS):
            return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(partial(_discard, owner=_owner(spec)))
        raise
    except TimeoutError:
        work.add_done_callback(partial(_discard, owner=_owner(spec)))
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"Could not start {_program(spec)!r}: its files could not be opened within {_PREPARE_SECONDS:g} seconds."
            " Check that the file systems of its folders answer.",
        ) from None
    except OSError as error:
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"Could not start {_program(spec)!r}: {error.filename or 'a file'} cannot be mounted in its sandbox: {error.strerror}.",
        ) from None


def _owner(spec: ProcessSpec) -> str:
    """The first root, by which threads and starts are counted: a slow file system then delays only the sessions in that folder."""
    return spec.confinement.roots[0] if spec.confinement and spec.confinement.roots else ""


def _discard(work: "asyncio.Future[PreparedProcess]", *, owner: str) -> None:
    """Close everything that was opened for a process that will not be started."""
    if work.cancelled() or work.exception() is not None:
        return
    prepared = work.result()
    prepared.resources.close()
    _close_channels(prepared)
    if prepared.start_fd is not None:
        os.close(prepared.start_fd)
    _run_in_thread(prepared.after_setup, owner)
    _run_in_thread(prepared.after_exit, owner)


def _run_in_thread(cleanup: ExitStack, owner: str) -> None:
    """Run a cleanup in a thread, because it changes files."""
    task = asyncio.get_running_loop().create_task(_THREADS.run(cleanup.close, owner=owner))
    _cleanups.add(task)
    task.add_done_callback(_cleanups.discard)


def _close_channels(prepared: PreparedProcess) -> None:
    if prepared.ready_fd is not None:
        os.close(prepared.ready_fd)
    if prepared.egress_channel is not None:
        prepared.egress_channel.close()


async def _start(starter: ProcessStarter, sandbox: SandboxBackend, request: SpawnRequest) -> Child:
    try:
        return await starter.start(request)
    except HoldfastError as error:
        raise HoldfastError(codes.NO_SANDBOX, f"The sandbox failed. {error.message}") from None


async def _wait_until_ready(prepared: PreparedProcess, child: Child, owner: str) -> None:
    """Wait until the sandbox is set up as planned, then let the server start.

    Raise if the sandbox closes the pipe without writing the pid of its process: its set-up failed.
    """
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
    if received and await _check_and_start_server(prepared, json.loads(received)["child-pid"], owner):
        return
    async with asyncio.timeout(_SETUP_SECONDS):
        await child.wait()
    reason = _read_stderr(child) or "it printed no error"
    raise HoldfastError(codes.NO_SANDBOX, f"The sandbox could not be set up: {reason}.")


async def _check_and_start_server(prepared: PreparedProcess, pid: int, owner: str) -> bool:
    """Check the sandbox, and let the server start. False if the sandbox has ended."""
    assert prepared.wait_and_check is not None
    assert prepared.start_fd is not None
    # `wait_and_check` has a deadline of its own, but may first have to wait for a thread.
    async with asyncio.timeout(2 * _SETUP_SECONDS):
        if not await _THREADS.run(_check_sandbox, prepared, pid, owner=owner):
            return False
    with contextlib.suppress(BrokenPipeError):  # the sandbox was killed at this moment
        os.write(prepared.start_fd, b"1")
    return True


def _check_sandbox(prepared: PreparedProcess, pid: int) -> bool:
    """Check the mounts, and that no server that needs other guards was started during the set-up. False if the sandbox has ended."""
    assert prepared.wait_and_check is not None
    if not prepared.wait_and_check(pid):
        return False
    for root in prepared.guarded_roots:
        root.check_record()
    return True


def _read_stderr(child: Child) -> str:
    os.set_blocking(child.stderr.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        text = (child.stderr.read(_STDERR_BYTES) or b"").decode(errors="replace")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split()).rstrip(".")
    return ""


async def _wait_readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _program(spec: ProcessSpec) -> str:
    return spec.argv[0] if spec.argv else ""


class StartSlots:
    """Limits how many confined servers start at the same time, so that they use at most a third of this process's descriptors.

    One owner (the first root of a server) cannot use up all slots: it gets another only while it uses fewer than are free.
    """

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._waiting: list[asyncio.Future[None]] = []

    @contextlib.asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """Wait until this owner may start another server. The start counts until the block ends."""
        while self._running[owner] >= self._free():
            slot_freed = asyncio.get_running_loop().create_future()
            self._waiting.append(slot_freed)
            await slot_freed
        self._running[owner] += 1
        try:
            yield
        finally:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
            waiting, self._waiting = self._waiting, []
            for slot_freed in waiting:
                with contextlib.suppress(RuntimeError):  # its event loop is closed
                    slot_freed.get_loop().call_soon_threadsafe(_set_done, slot_freed)

    def _free(self) -> int:
        return max(2, descriptor_limit() // 3 // _DESCRIPTORS_PER_START) - self._running.total()


def _set_done(slot_freed: asyncio.Future[None]) -> None:
    if not slot_freed.done():
        slot_freed.set_result(None)


_slots = StartSlots()
