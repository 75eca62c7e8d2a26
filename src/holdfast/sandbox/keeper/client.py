"""The host's side of the keeper process: send start requests, and receive status messages about each server."""

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from holdfast.model.descriptor_limit import limit_for_servers
from holdfast.model.light_event import LightEvent
from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.keeper.child import GONE_SECONDS, Child, Pipes
from holdfast.sandbox.keeper.spawn_request import SpawnRequest, spawn_error

log = logging.getLogger(__name__)

_SCRIPT = Path(__file__).with_name("keeper_process.py")
_CLOSE_SECONDS = 5.0  # how long to wait for the keeper process; one that is stopped (SIGSTOP) never exits
_START_SECONDS = 30.0
_POLL_SECONDS = 1.0
_FIRST_PIECE = 32 * 1024  # fits into the buffer of any new socket, so sending it never blocks
_THREADS = WorkerThreads("keeper", threads=4)


class KeeperClient:
    """Runs the keeper process, which forks a supervisor for each server. Each supervisor has its own socket to the host."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._retired: list[subprocess.Popen[bytes]] = []
        self._supervisors: set[_SupervisorProtocol] = set()

    @property
    def pid(self) -> int | None:
        """The pid of the keeper process; None if it does not run."""
        return self._process.pid if self._process is not None else None

    def open(self) -> None:
        """Start the keeper process, unless it runs already."""
        if self._control is not None:
            return
        host_end, keeper_end = socket.socketpair()
        with keeper_end:
            try:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-I",
                        "-S",
                        str(_SCRIPT),
                        str(keeper_end.fileno()),
                        str(limit_for_servers()),
                    ],
                    pass_fds=[keeper_end.fileno()],
                    env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                host_end.close()
                raise
        host_end.setblocking(False)
        self._control = host_end

    async def close(self) -> None:
        """End every server that still runs, then the keeper process."""
        for supervisor in tuple(self._supervisors):
            supervisor.terminate()
        try:
            async with asyncio.timeout(GONE_SECONDS):
                for supervisor in tuple(self._supervisors):
                    await supervisor.wait_gone()
        except TimeoutError:
            log.warning("servers have not ended in time", extra={"servers": len(self._supervisors)})
        self._retire()
        await _THREADS.run(_reap, self._retired)

    async def start(self, request: SpawnRequest) -> Child:
        """Start a process under a supervisor. If the keeper process has died, start a new one first."""
        for _ in range(2):
            control = self._control
            try:
                async with asyncio.timeout(_START_SECONDS):
                    return await self._start(request)
            except TimeoutError:
                why = f"the keeper process did not start it within {_START_SECONDS:g} seconds"
                raise spawn_error(request, "keeper", None, why) from None
            except _KeeperLostError:
                if self._control is control:  # otherwise another start has already replaced it
                    self._retire()
                    self.open()
            except OSError as error:
                raise spawn_error(request, "pipes", error.errno, str(error)) from None
        raise spawn_error(request, "keeper", None, "the keeper process died twice")

    async def _start(self, request: SpawnRequest) -> Child:
        supervisor = _SupervisorProtocol(self._supervisors)
        with Pipes() as pipes:
            try:
                await self._send_request(request, pipes, supervisor)
                pipes.close_server_ends()
                pid = await supervisor.wait_started(request)
            except BaseException:
                supervisor.terminate()
                raise
            return Child(pid, pipes.keep(), supervisor)

    async def _send_request(
        self, request: SpawnRequest, pipes: Pipes, supervisor: "_SupervisorProtocol"
    ) -> None:
        message = _encode_request(request)
        host_end, supervisor_end = socket.socketpair()
        try:
            with supervisor_end:
                host_end.setblocking(False)
                _check_watchable(host_end)
                folder = () if request.cwd_fd is None else (request.cwd_fd,)
                fds = [*pipes.server_fds, *request.descriptors, *folder]
                sent = socket.send_fds(host_end, [message[:_FIRST_PIECE]], fds)
                await self._send_socket(supervisor_end)
        except BaseException:
            host_end.close()
            raise
        await _connect(supervisor, host_end)
        supervisor.send_rest(host_end, message[sent:])

    async def _send_socket(self, supervisor_end: socket.socket) -> None:
        if self._control is None:
            raise _KeeperLostError
        while True:
            try:
                socket.send_fds(self._control, [b"+"], [supervisor_end.fileno()])
            except BlockingIOError:
                await _wait_writable(self._control)
            except OSError as error:
                if error.errno in (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM):
                    raise  # another keeper process would not help
                raise _KeeperLostError from None
            else:
                return

    def _retire(self) -> None:
        """Close the control socket: the keeper process then exits after its last supervisor. Reap retired keeper processes."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._retired.append(self._process)
            self._process = None
        self._retired[:] = [process for process in self._retired if process.poll() is None]


class _KeeperLostError(Exception):
    """The keeper process, or the new supervisor, died before the server started."""


async def _connect(supervisor: "_SupervisorProtocol", host_end: socket.socket) -> None:
    """Connect the protocol to the socket, even if the caller is cancelled: uvloop would close the connection without telling the protocol."""
    loop = asyncio.get_running_loop()
    connecting = asyncio.ensure_future(loop.create_unix_connection(lambda: supervisor, sock=host_end))
    try:
        await asyncio.shield(connecting)
    except asyncio.CancelledError:
        await asyncio.wait([connecting])
        raise
    except BaseException:
        host_end.close()
        raise


class _SupervisorProtocol(asyncio.Protocol):
    """The host's end of one supervisor's socket. The supervisor closes its end when no process of the server is left."""

    def __init__(self, supervisors: "set[_SupervisorProtocol]") -> None:
        loop = asyncio.get_running_loop()
        self._supervisors = supervisors
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._pid = 0
        self._start: asyncio.Future[int | tuple[str, int | None, str]] = loop.create_future()
        self._exit: asyncio.Future[int] = loop.create_future()
        self._gone = LightEvent()
        self._gone_or_given_up = LightEvent()
        self._callbacks: list[Callable[[], None]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass of it
        self._supervisors.add(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._on_message(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:
        self._supervisors.discard(self)
        if not self._start.done():
            self._start.cancel()
        if not self._exit.done():
            self._exit.set_result(-9)  # the supervisor was killed, and its server with it
        self._gone.set()
        self._gone_or_given_up.set()
        for callback in self._callbacks:
            callback()

    async def wait_started(self, request: SpawnRequest) -> int:
        while not self._start.done():
            await asyncio.wait([self._start], timeout=_POLL_SECONDS)
            self._read_unwatched()
        if self._start.cancelled():
            raise _KeeperLostError
        match self._start.result():
            case int(pid):
                return pid
            case (step, number, text):
                raise spawn_error(request, step, number, text)

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def wait_gone(self) -> None:
        while not self._gone_or_given_up.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._gone_or_given_up.wait()
            self._read_unwatched()

    def send_rest(self, host_end: socket.socket, rest: bytes) -> None:
        self._socket = host_end
        if rest and self._transport is not None:
            self._transport.write(rest)

    def end(self, grace: float) -> None:
        # Not through the transport: if the supervisor has exited, a failed write there discards unread messages.
        if self._socket is not None and not self._gone.is_set():
            with contextlib.suppress(OSError):
                self._socket.send(b"%f\n" % max(0.0, grace))

    def terminate(self) -> None:
        if self._gone.is_set():
            return
        if self._socket is not None:  # not through the transport, which may have data that it cannot send
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        elif self._transport is not None:
            self._transport.write_eof()

    def on_gone(self, callback: Callable[[], None]) -> None:
        if self._gone.is_set():
            callback()
        else:
            self._callbacks.append(callback)

    def _read_unwatched(self) -> None:
        """Read the socket directly: if the user's limit of watches was reached, the event loop does not watch the socket."""
        if self._socket is None or self._transport is None or self._gone.is_set():
            return
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.data_received(data)
        else:
            self._transport.abort()  # calls `connection_lost`

    def _on_message(self, message: dict[str, object]) -> None:
        match message:
            case {"started": int(pid)}:
                self._pid = pid
                self._resolve_start(pid)
            case {"failed": [str(step), int() | None as number, str(text)]}:
                self._resolve_start((step, number, text))
            case {"exited": int(code)}:
                if not self._exit.done():
                    self._exit.set_result(code)
            case {"survivors": str(pids)}:
                log.warning("processes could not be ended", extra={"server_pid": self._pid, "pids": pids})
                self._gone_or_given_up.set()
            case _:
                raise ValueError(f"Unexpected message from a supervisor: {message!r}.")

    def _resolve_start(self, result: int | tuple[str, int | None, str]) -> None:
        if not self._start.done():
            self._start.set_result(result)


def _check_watchable(sock: socket.socket) -> None:
    """Raise if the event loop cannot watch another socket. A transport would not report this problem."""
    loop = asyncio.get_running_loop()
    loop.add_reader(sock, lambda: None)
    loop.remove_reader(sock)


def _encode_request(request: SpawnRequest) -> bytes:
    return (
        json.dumps(
            {
                "argv": request.argv,
                "env": dict(request.env),
                "cwd": request.cwd,
                "descriptors": 3 + len(request.descriptors) + (request.cwd_fd is not None),
                "has_cwd_descriptor": request.cwd_fd is not None,
                "run_as": request.run_as,
                "cgroups": [
                    (group.parent, [(name, dict(limits)) for name, limits in group.outer], dict(group.limits))
                    for group in request.cgroups
                ],
                "has_monitor": request.has_monitor,
                "prefer_oom_kill": request.prefer_oom_kill,
                "cleanup": request.cleanup,
            }
        ).encode()
        + b"\n"
    )


async def _wait_writable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(sock, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_writer(sock)


def _reap(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_CLOSE_SECONDS)
