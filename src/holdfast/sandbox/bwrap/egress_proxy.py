"""The egress proxy: runs in the host and lets one sandbox reach the hosts granted to it."""

import array
import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable

from holdfast.model.name_resolver import RESOLVER
from holdfast.model.process import Confinement
from holdfast.sandbox.bwrap.egress_policy import EgressPolicy, Endpoint, ProxyRequest, parse_request

log = logging.getLogger(__name__)

_CONNECTIONS = 64
_HEAD_BYTES = 32 * 1024
_HEAD_SECONDS = 20.0
_CONNECT_SECONDS = 20.0
_CHUNK = 64 * 1024
_numbers = itertools.count(1)

Resolve = Callable[[Endpoint], Awaitable[list[str]]]
"""A function that looks up the addresses of an endpoint."""


class EgressProxy:
    """Serves one sandbox, on the listener that was opened inside it."""

    def __init__(self, confinement: Confinement, resolve: Resolve | None = None) -> None:
        self._policy = EgressPolicy(confinement)
        self._owner = f"sandbox {next(_numbers)}"
        self._resolve = resolve or self._look_up
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, channel: socket.socket) -> None:
        """Wait until the sandbox sends its listener, then serve it. Raise if the channel closes first."""
        channel.setblocking(False)
        await _wait_readable(channel)
        listener = _receive_fd(channel)
        if listener is None:
            raise ConnectionError("it did not open its egress listener")
        await self.serve(socket.socket(fileno=listener))

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections from this listener until the proxy is closed."""
        listener.setblocking(False)
        # In two steps: `close` must find the server even if `start_serving` is cancelled.
        self._server = await asyncio.start_server(
            self._on_connection, sock=listener, limit=_HEAD_BYTES, start_serving=False
        )
        await self._server.start_serving()

    def close(self) -> None:
        """Stop serving, and close every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) > _CONNECTIONS:
                await _refuse(writer, 503, "Too many open connections. Close some.")
            else:
                await self._handle_request(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # one end disconnected, or sent no complete request in time
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        request = parse_request(head)
        if isinstance(request, str):
            await _refuse(writer, 400, request)
            return
        upstream = await self._connect(request, writer)
        if upstream is None:
            return
        up_reader, up_writer = upstream
        try:
            if request.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            up_writer.write(request.head)
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, up_writer))
                group.create_task(_copy(up_reader, writer))
        finally:
            up_writer.close()

    async def _connect(
        self, request: ProxyRequest, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Check the name, then connect to the first address that the policy allows. On failure, answer and return None."""
        endpoint = request.endpoint
        reason, status = self._policy.why_name_refused(endpoint), 403
        if reason is None:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    for address in await self._resolve(endpoint):
                        reason = self._policy.why_address_refused(endpoint, address)
                        if reason is None:
                            return await asyncio.open_connection(address, endpoint.port)
                if reason is None:
                    reason, status = f"{endpoint} has no address.", 502
            except (OSError, TimeoutError) as error:
                reason, status = f"{endpoint} cannot be reached: {str(error) or 'no answer in time'}.", 502
        message = "egress refused" if status == 403 else "egress failed"
        log.warning(message, extra={"endpoint": str(endpoint), "reason": reason})
        await _refuse(writer, status, reason)
        return None

    async def _look_up(self, endpoint: Endpoint) -> list[str]:
        return await RESOLVER.look_up(endpoint.host, owner=self._owner)


def _receive_fd(channel: socket.socket) -> int | None:
    """Receive a descriptor, close-on-exec from the start: `socket.recv_fds` would let a child inherit it."""
    fds = array.array("i")
    _, control, _, _ = channel.recvmsg(1, socket.CMSG_LEN(fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: fds.itemsize])
    return fds[0] if fds else None


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until end of file, then half-close `target`. An error ends only this direction."""
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
        target.write_eof()


async def _refuse(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    phrase = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}[status]
    body = f"holdfast: {reason}\n".encode()
    writer.write(
        b"HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
        % (status, phrase.encode(), len(body), body)
    )
    with contextlib.suppress(OSError):
        await writer.drain()


async def _wait_readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sock)
