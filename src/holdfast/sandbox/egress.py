"""The way out of a sandbox: a proxy in the host, for the hosts that were granted and no others."""

import array
import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable

from holdfast.model.launch import Confinement
from holdfast.sandbox.grants import Grants, Place, Wanted, read_request

log = logging.getLogger(__name__)

_CONNECTIONS = 64
_HEAD_BYTES = 32 * 1024
_HEAD_SECONDS = 20.0
_CONNECT_SECONDS = 20.0
_CHUNK = 64 * 1024

Resolve = Callable[[Place], Awaitable[list[str]]]
"""The addresses of a place, as the host's own resolver knows them."""


class Egress:
    """Serves one sandbox, on the listener that its bridge opened inside."""

    def __init__(self, confinement: Confinement, resolve: Resolve | None = None) -> None:
        self._grants = Grants(confinement)
        self._resolve = resolve or _addresses
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self, bridge: socket.socket) -> None:
        """Wait for the listener, and serve it. It fails when the bridge is gone without sending one."""
        bridge.setblocking(False)
        await _readable(bridge)
        listener = _received(bridge)
        if listener is None:
            raise ConnectionError("The bridge inside the sandbox did not come up.")
        await self.serve(socket.socket(fileno=listener))

    async def serve(self, listener: socket.socket) -> None:
        """Serve a listener, which is closed with us."""
        listener.setblocking(False)
        # In two steps: the server is ours to close before anything can cancel us.
        self._server = await asyncio.start_server(
            self._accept, sock=listener, limit=_HEAD_BYTES, start_serving=False
        )
        await self._server.start_serving()

    def close(self) -> None:
        """Stop, and cut every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if len(self._serving) > _CONNECTIONS:
                await _refuse(writer, 503, "Too many connections at once. Close some.")
            else:
                await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # one end went away, or never said what it wants
        finally:
            self._serving.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        wanted = read_request(head)
        if isinstance(wanted, str):
            await _refuse(writer, 400, wanted)
            return
        upstream = await self._connect(wanted, writer)
        if upstream is None:
            return
        up_reader, up_writer = upstream
        try:
            if wanted.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            up_writer.write(wanted.first)
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, up_writer))
                both.create_task(_copy(up_reader, writer))
        finally:
            up_writer.close()

    async def _connect(
        self, wanted: Wanted, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Check the name, then the addresses, and connect to an address that was checked."""
        place = wanted.place
        refusal, status = self._grants.why_not(place), 403
        if refusal is None:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    for address in await self._resolve(place):
                        refusal = self._grants.why_not_address(place, address)
                        if refusal is None:
                            return await asyncio.open_connection(address, place.port)
                    refusal = refusal or f"{place} has no address."
            except (OSError, TimeoutError) as error:
                refusal, status = f"{place} cannot be reached: {error or 'no answer in time'}.", 502
        log.warning("egress refused", extra={"place": str(place), "reason": refusal})
        await _refuse(writer, status, refusal)
        return None


def _received(bridge: socket.socket) -> int | None:
    """The descriptor in the message; `socket.recv_fds` would let a child inherit it for a moment."""
    fds = array.array("i")
    _, control, _, _ = bridge.recvmsg(1, socket.CMSG_LEN(fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: fds.itemsize])
    return fds[0] if fds else None


async def _addresses(place: Place) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the end, and pass the end on; a side that is gone ends its direction only."""
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
        target.write_eof()


async def _refuse(writer: asyncio.StreamWriter, status: int, why: str) -> None:
    words = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}[status]
    body = f"holdfast: {why}\n".encode()
    writer.write(
        b"HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
        % (status, words.encode(), len(body), body)
    )
    with contextlib.suppress(OSError):
        await writer.drain()


async def _readable(source: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(source, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(source)
