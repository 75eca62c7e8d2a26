"""The host's side of the keeper's process: hand it a program, hear how the server fares."""

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from holdfast.sandbox.child import Child
from holdfast.sandbox.failure import could_not_start
from holdfast.sandbox.pipes import Pipes
from holdfast.sandbox.program import Program

log = logging.getLogger(__name__)

_SCRIPT = Path(__file__).with_name("warden.py")
_PATIENCE = 5.0  # the keeper's process goes by itself; one that is stopped is not waited for
_FIRST_PIECE = 32 * 1024  # fits into any fresh socket, so that sending it never waits


class Wards:
    """Owns the keeper's process; every server has a warden there, and a socket to it here."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._retired: list[subprocess.Popen[bytes]] = []
        self._wards: set[_Ward] = set()

    @property
    def pid(self) -> int | None:
        """The keeper's process, where it runs."""
        return self._process.pid if self._process is not None else None

    def open(self) -> None:
        """Start the keeper's process."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SCRIPT), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._control = ours

    async def close(self) -> None:
        """End every server that is left, then the keeper's process."""
        for ward in tuple(self._wards):
            ward.let_go()
        for ward in tuple(self._wards):
            await ward.gone()
        self._retire()
        await asyncio.to_thread(_reap, self._retired)

    async def start(self, program: Program) -> Child:
        """Start a program under a warden; a keeper's process that died is replaced."""
        for _ in range(2):
            control = self._control
            try:
                return await self._start(program)
            except _Lost:
                if self._control is control:  # or another start has replaced it already
                    self._retire()
                    self.open()
            except OSError as error:
                raise could_not_start(program, "process", error.errno, str(error)) from None
        raise could_not_start(program, "keeper", None, "the keeper's process does not stay alive")

    async def _start(self, program: Program) -> Child:
        ward = _Ward(self._wards)
        with Pipes() as pipes:
            try:
                await self._hand_over(program, pipes, ward)
                pipes.close_theirs()
                pid = await ward.started(program)
            except BaseException:
                ward.let_go()
                raise
            return Child(pid, pipes.keep(), ward)

    async def _hand_over(self, program: Program, pipes: Pipes, ward: "_Ward") -> None:
        order = _order(program)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                ours.setblocking(False)
                sent = socket.send_fds(ours, [order[:_FIRST_PIECE]], [*pipes.theirs, *program.descriptors])
                await self._send_socket(theirs)
            await asyncio.get_running_loop().create_unix_connection(lambda: ward, sock=ours)
        except BaseException:
            ours.close()
            raise
        ward.joined(ours, order[sent:])

    async def _send_socket(self, theirs: socket.socket) -> None:
        if self._control is None:
            raise _Lost
        while True:
            try:
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            except BlockingIOError:
                await _writable(self._control)
            except OSError:
                raise _Lost from None
            else:
                return

    def _retire(self) -> None:
        """Close the socket; the process goes when its last warden is done. What is gone already is reaped."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._retired.append(self._process)
            self._process = None
        self._retired[:] = [process for process in self._retired if process.poll() is None]


class _Lost(Exception):
    """The keeper's process is gone."""


class _Ward(asyncio.Protocol):
    """One server's warden, as the host sees it: it tells what happens, and its socket closes at the very end."""

    def __init__(self, wards: "set[_Ward]") -> None:
        loop = asyncio.get_running_loop()
        self._wards = wards
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._heard = b""
        self._pid = 0
        self._start: asyncio.Future[int | tuple[str, int | None, str]] = loop.create_future()
        self._exit: asyncio.Future[int] = loop.create_future()
        self._gone = asyncio.Event()
        self._last: list[Callable[[], None]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        self._wards.add(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:
        self._wards.discard(self)
        if not self._start.done():
            self._start.cancel()
        if not self._exit.done():
            self._exit.set_result(-9)  # its warden was killed, and it with it
        self._gone.set()
        for call in self._last:
            call()

    async def started(self, program: Program) -> int:
        await asyncio.wait([self._start])
        if self._start.cancelled():
            raise _Lost
        match self._start.result():
            case int(pid):
                return pid
            case (stage, number, words):
                raise could_not_start(program, stage, number, words)

    async def exited(self) -> int:
        return await asyncio.shield(self._exit)

    async def gone(self) -> None:
        await self._gone.wait()

    def joined(self, ours: socket.socket, rest: bytes) -> None:
        self._socket = ours
        if rest and self._transport is not None:
            self._transport.write(rest)

    def end(self, grace: float) -> None:
        # Past the transport, which would take a warden's end for an error and forget its last words.
        if self._socket is not None and not self._gone.is_set():
            with contextlib.suppress(OSError):
                self._socket.send(b"%f\n" % max(0.0, grace))

    def let_go(self) -> None:
        if self._transport is not None and not self._gone.is_set():
            self._transport.write_eof()

    def when_gone(self, call: Callable[[], None]) -> None:
        if self._gone.is_set():
            call()
        else:
            self._last.append(call)

    def _hear(self, message: dict[str, object]) -> None:
        match message:
            case {"started": int(pid)}:
                self._pid = pid
                self._resolve_start(pid)
            case {"failed": [str(stage), int() | None as number, str(words)]}:
                self._resolve_start((stage, number, words))
            case {"exited": int(code)}:
                if not self._exit.done():
                    self._exit.set_result(code)
            case {"left": str(pids)}:
                log.warning("processes could not be ended", extra={"server_pid": self._pid, "left": pids})
            case _:
                raise ValueError(f"A warden said {message!r}.")

    def _resolve_start(self, outcome: int | tuple[str, int | None, str]) -> None:
        if not self._start.done():
            self._start.set_result(outcome)


def _order(program: Program) -> bytes:
    return (
        json.dumps(
            {
                "argv": program.argv,
                "env": dict(program.env),
                "cwd": program.cwd,
                "descriptors": 3 + len(program.descriptors),
                "user": program.user,
                "cgroups": [(group.parent, dict(group.limits)) for group in program.cgroups],
                "monitor": program.monitor,
                "first_to_go": program.first_to_go,
                "farewell": program.farewell,
            }
        ).encode()
        + b"\n"
    )


async def _writable(waiting: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(waiting, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_writer(waiting)


def _reap(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
