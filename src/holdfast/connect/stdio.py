"""Connect to a stdio server: start the program, do the handshake, and end all its processes on exit."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from holdfast.connect.connection import Connection, ConnectOptions
from holdfast.connect.handshake import handshake
from holdfast.connect.notifications import Notifications, tool_change_subscription
from holdfast.connect.scope import Scope
from holdfast.connect.server_requests import ServerRequests
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.mask import Mask
from holdfast.model.process import ProcessSpec
from holdfast.model.secrets import secrets_in_spec
from holdfast.model.server import ServerSpec, Stdio
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes

_STDERR_BYTES = 16 * 1024
_STDERR_MARGIN = (
    4 * 1024
)  # kept in addition, so that a secret at the start of the tail is complete and can be masked
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)?", re.DOTALL)
_EXIT_SECONDS = 0.2  # how long to wait for the last output and the exit status


@asynccontextmanager
async def open_stdio(
    spec: ServerSpec,
    scope: Scope | None,
    *,
    server_requests: ServerRequests,
    meta: JsonObject,
    keeper: Keeper,
    options: ConnectOptions,
) -> AsyncIterator[Connection]:
    """Start the program and do the handshake. On exit, the program and all its child processes are gone."""
    assert isinstance(spec.transport, Stdio)
    child = await keeper.spawn(_process_spec(spec, spec.transport, scope))
    try:
        tail, transport = await capture_stderr(child.stderr, Mask.of(secrets_in_spec(spec)))
        try:
            notifications = Notifications(server_requests)
            peer = Peer(
                on_request=notifications.answer, on_notification=notifications.receive, limits=options.limits
            )
            async with connect_pipes(peer, child.stdout, child.stdin):
                try:
                    client = await handshake(
                        spec, peer, server_requests=server_requests, meta=meta, options=options
                    )
                except HoldfastError as error:
                    raise await _start_error(spec, error, tail, child) from None
                async with tool_change_subscription(client, server_requests):
                    yield Connection(
                        client, ended=peer.ended, notifications=notifications, stderr_tail=tail.text
                    )
        finally:
            transport.close()
    finally:
        child.close()  # nothing else closes the pipes if the caller is cancelled before `connect_pipes`
        await child.end(options.end_seconds)


def _process_spec(spec: ServerSpec, stdio: Stdio, scope: Scope | None) -> ProcessSpec:
    return ProcessSpec(
        argv=(stdio.command, *stdio.args),
        env=stdio.env,
        cwd=(scope.context.cwd if scope is not None else "") or str(Path.home()),
        confinement=spec.confinement,
    )


class StderrTail(asyncio.Protocol):
    """Keeps the last bytes that a server wrote to its standard error."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._kept = bytearray()
        self.closed = asyncio.Event()
        """Set at the end of the stream."""

    def data_received(self, data: bytes) -> None:
        self._kept += data[-_STDERR_BYTES - _STDERR_MARGIN :]
        if len(self._kept) > 2 * (_STDERR_BYTES + _STDERR_MARGIN):
            del self._kept[: -_STDERR_BYTES - _STDERR_MARGIN]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def text(self) -> str:
        """The last lines, without terminal control sequences and with secrets masked."""
        text = _ANSI.sub("", bytes(self._kept[-_STDERR_BYTES - _STDERR_MARGIN :]).decode(errors="replace"))
        plain = "".join(char for char in text if char == "\n" or char.isprintable())
        return self._mask.mask_line(plain)[-_STDERR_BYTES:].strip()


async def capture_stderr(stderr: IO[bytes], mask: Mask) -> tuple[StderrTail, asyncio.ReadTransport]:
    """Start reading a server's standard error. The caller closes the transport."""
    transport, tail = await asyncio.get_running_loop().connect_read_pipe(lambda: StderrTail(mask), stderr)
    return tail, transport


async def _start_error(
    spec: ServerSpec, error: HoldfastError, tail: StderrTail, child: Child
) -> HoldfastError:
    # The error message of a program that just exited may not have arrived yet.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(tail.closed.wait(), _EXIT_SECONDS)
    stderr, reason = tail.text(), error.message
    if error.code is codes.CONNECTION_CLOSED:
        reason = await _describe_exit(child)
        stderr = stderr or "It wrote nothing to stderr. Run it by hand to see why."
    details = f"\n{stderr}" if stderr else ""
    return HoldfastError(error.code, f"Could not start {spec.name!r}: {reason}{details}", **error.details)


async def _describe_exit(child: Child) -> str:
    try:
        status = await asyncio.wait_for(child.wait(), _EXIT_SECONDS)
    except TimeoutError:
        return "It closed its output before the handshake."
    how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
    return f"It {how} before the handshake."
