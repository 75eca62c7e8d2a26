"""The egress proxy: it runs in the host, and lets one sandbox reach the hosts granted to it.

The proxy shares the event loop with all sessions. So the number of connections that it accepts per second, and of pieces of
data that it copies per second, is limited for each sandbox. Further connections and data wait in the kernel.
"""

import array
import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any

from holdfast.model.descriptor_limit import descriptor_limit
from holdfast.model.name_resolver import RESOLVER
from holdfast.model.process import Confinement
from holdfast.sandbox.bwrap.egress_policy import EgressPolicy, Endpoint, ProxyRequest, parse_request
from holdfast.sandbox.view import RefusedHost

log = logging.getLogger(__name__)

_MAX_CONNECTIONS = 64
_ACCEPTS_PER_SECOND = 100
_COPIES_PER_SECOND = 2000
_COPIES_AT_ONCE = 16
_RETRY_SECONDS = 0.1
_MAX_HEAD_BYTES = 32 * 1024
_HEAD_END = b"\r\n\r\n"
_HEAD_SECONDS = 20.0
_CONNECT_SECONDS = 20.0
_REFUSE_SECONDS = 2.0
_REFUSE_READS = 4  # how many times to read what the client still sends after a refusal
_CHUNK_BYTES = 64 * 1024
_SLACK_SECONDS = 0.004  # how much longer to wait than needed, so that fewer timers are set
_DESCRIPTORS_PER_CONNECTION = 2  # one to the client, and one to the remote host
_VERDICT_LINES = {403: b"Holdfast-Egress: refused\r\n", 502: b"Holdfast-Egress: failed\r\n"}
_proxy_numbers = itertools.count(1)

VERDICT_HEADER = "holdfast-egress"
"""A header of the proxy's own answers: `refused` by the policy, or `failed` to connect."""

Resolve = Callable[[Endpoint], Awaitable[list[str]]]
"""A function that looks up the addresses of an endpoint."""


class _OpenConnections:
    """Counts the connections of all sandboxes. Together they use at most a quarter of this process's descriptors."""

    def __init__(self) -> None:
        self.total = 0

    def may_open(self, own: int) -> bool:
        """Whether a sandbox with `own` connections may open another: only if more than `own` connections are still free."""
        return own < descriptor_limit() // 4 // _DESCRIPTORS_PER_CONNECTION - self.total


_open_connections = _OpenConnections()


class EgressProxy:
    """Serves one sandbox, through the listener that was opened inside it."""

    def __init__(
        self,
        confinement: Confinement,
        resolve: Resolve | None = None,
        on_refused: Callable[[RefusedHost], None] = lambda _: None,
    ) -> None:
        """`on_refused` is called with the host of each connection that is refused."""
        self._policy = EgressPolicy(confinement)
        self._logs_refused = confinement.logs_refused
        self._on_refused = on_refused
        self._owner = f"sandbox {next(_proxy_numbers)}"
        self._resolve = resolve or self._look_up
        self._slots = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._accepts = _RateLimit(per_second=_ACCEPTS_PER_SECOND, burst=_MAX_CONNECTIONS)
        self._copies = _RateLimit(per_second=_COPIES_PER_SECOND, burst=_COPIES_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._connection_count = 0

    async def open(self, channel: socket.socket) -> None:
        """Wait until the sandbox sends its listener, then serve it. Raise if the channel closes first."""
        channel.setblocking(False)
        await _wait_readable(channel)
        listener = _receive_fd(channel)
        if listener is None:
            raise ConnectionError("the sandbox did not open its egress listener")
        await self.serve(socket.socket(fileno=listener))

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections from this listener until the proxy is closed."""
        listener.setblocking(False)
        listener.listen(_MAX_CONNECTIONS)
        self._start(self._accept(listener))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listener: socket.socket) -> None:
        """Accept one connection after another, each once a slot is free and the rate limit allows it."""
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                await self._slots.acquire()
                await self._accepts.wait()
                while not _open_connections.may_open(self._connection_count):  # noqa: ASYNC110 - several event loops may share `_open_connections`
                    await asyncio.sleep(_RETRY_SECONDS)
                try:
                    client, _ = await loop.sock_accept(listener)
                except OSError as error:  # too many open files, or the client has gone
                    log.warning("egress connection not accepted", extra={"reason": str(error)})
                    self._slots.release()
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    self._count(1)
                    task = self._start(self._serve_client(client))
                    task.add_done_callback(lambda _: self._count(-1))
                    task.add_done_callback(lambda _: self._slots.release())

    def _count(self, change: int) -> None:
        self._connection_count += change
        _open_connections.total += change

    async def _serve_client(self, client: socket.socket) -> None:
        # An OSError means that one end disconnected, or that the request was not complete in time.
        with client, contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._handle_request(client)

    async def _handle_request(self, client: socket.socket) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            head, rest = await self._receive_head(client)
        request = parse_request(head) if head.endswith(_HEAD_END) else "The head of the request is too long."
        if isinstance(request, str):
            await self._refuse(client, 400, request)
            return
        upstream = await self._connect(request, client)
        if upstream is None:
            return
        loop = asyncio.get_running_loop()
        with upstream:
            if request.is_tunnel:
                await loop.sock_sendall(client, b"HTTP/1.1 200 Connection established\r\n\r\n")
            await loop.sock_sendall(upstream, request.head + rest)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(client, upstream))
                group.create_task(self._copy(upstream, client))

    async def _receive_head(self, client: socket.socket) -> tuple[bytes, bytes]:
        """The head of a request, and what was received after it. A head that is too long is returned without its end."""
        data = bytearray()
        while (end := data.find(_HEAD_END)) < 0 and len(data) <= _MAX_HEAD_BYTES:
            part = await self._receive(client, _MAX_HEAD_BYTES)
            if not part:
                raise ConnectionError("the request is not complete")
            data += part
        if end < 0:
            return bytes(data), b""
        end += len(_HEAD_END)
        return bytes(data[:end]), bytes(data[end:])

    async def _copy(self, source: socket.socket, target: socket.socket) -> None:
        """Copy until end of file, then half-close `target`. An error ends only this direction."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await self._receive(source, _CHUNK_BYTES):
                await loop.sock_sendall(target, data)
            target.shutdown(socket.SHUT_WR)

    async def _receive(self, source: socket.socket, limit: int) -> bytes:
        await self._copies.wait()
        return await asyncio.get_running_loop().sock_recv(source, limit)

    async def _connect(self, request: ProxyRequest, client: socket.socket) -> socket.socket | None:
        """Check the name, then connect to the first address that the policy allows. On failure, answer and return None."""
        endpoint = request.endpoint
        reason, status = self._policy.why_name_refused(endpoint), 403
        is_granted = reason is None
        if is_granted:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    for address in await self._resolve(endpoint):
                        reason = self._policy.why_address_refused(endpoint, address)
                        if reason is None:
                            return await _open_connection(address, endpoint.port)
                if reason is None:
                    reason, status = f"{endpoint} has no address.", 502
            except (OSError, TimeoutError) as error:
                reason, status = f"{endpoint} cannot be reached: {str(error) or 'no answer in time'}.", 502
        message = "egress refused" if status == 403 else "egress failed"
        if status == 403:
            self._on_refused(RefusedHost(endpoint=str(endpoint), reason=reason if is_granted else ""))
        level = logging.WARNING if self._logs_refused else logging.DEBUG
        log.log(level, message, extra={"endpoint": str(endpoint), "reason": reason})
        await self._refuse(client, status, reason)
        return None

    async def _refuse(self, client: socket.socket, status: int, reason: str) -> None:
        phrase = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}[status]
        body = f"holdfast: {reason}\n".encode()
        answer = (
            b"HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n%s"
            % (status, phrase.encode(), len(body), _VERDICT_LINES.get(status, b""), body)
        )
        async with asyncio.timeout(_REFUSE_SECONDS):
            await asyncio.get_running_loop().sock_sendall(client, answer)
            client.shutdown(socket.SHUT_WR)
            # Read what the client still sends: closing the connection before would discard the answer.
            for _ in range(_REFUSE_READS):
                if not await self._receive(client, _CHUNK_BYTES):
                    break

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


class _RateLimit:
    """Limits how often the event loop works for one sandbox: `burst` times at once, `per_second` times in the long run."""

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._seconds = 1 / per_second
        self._burst_seconds = burst / per_second
        self._due = 0.0
        self._order = asyncio.Lock()

    async def wait(self) -> None:
        """Wait until the caller may work once. Callers wait in order."""
        async with self._order:
            now = monotonic()
            self._due = max(self._due, now - self._burst_seconds) + self._seconds
            if self._due > now:
                await asyncio.sleep(self._due - now + _SLACK_SECONDS)


async def _open_connection(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _wait_readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sock)
