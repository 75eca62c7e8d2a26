"""HTTP servers and proxies on raw sockets, for tests of what a client accepts and reuses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from yarl import URL

from holdfast.connect.http.address_policy import LookUp
from holdfast.connect.http.pools import Pool
from holdfast.connect.http.response import HttpResponse

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def sized_response(body: bytes, *headers: bytes, version: bytes = b"1.1") -> bytes:
    """A response with a Content-Length."""
    lines = (b"HTTP/%b 200 OK" % version, b"Content-Length: %d" % len(body), *headers)
    return b"\r\n".join((*lines, b"", body))


@dataclass
class RawServer:
    """The address of a server, and what it received."""

    url: URL = field(default_factory=lambda: URL("http://there:1/"))
    request_connections: list[int] = field(default_factory=list[int])
    """For each request, the number of its connection."""
    heads: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0
    client_gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has disconnected."""

    @property
    def port(self) -> int:
        assert self.url.port is not None
        return self.url.port


@asynccontextmanager
async def run_server(talk: Talk, server: RawServer, **options: Any) -> AsyncIterator[None]:
    """Run `talk` for every connection. On exit, every connection is closed."""
    async with AsyncExitStack() as stack:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server.connections += 1
            stack.callback(writer.transport.abort)
            try:
                await talk(reader, writer)
                while await reader.read(65536):
                    pass
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                server.client_gone.set()
                writer.transport.abort()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
        stack.callback(listener.close)
        scheme = "https" if "ssl" in options else "http"
        server.url = URL.build(scheme=scheme, host="there", port=listener.sockets[0].getsockname()[1])
        yield


@asynccontextmanager
async def serve_answers(*answers: bytes | Talk, **options: Any) -> AsyncIterator[RawServer]:
    """Send these answers in order, each to the next request on any connection."""
    remaining, server = list(answers), RawServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = server.connections
        while remaining:
            server.heads.append(await reader.readuntil(b"\r\n\r\n"))
            server.request_connections.append(number)
            answer = remaining.pop(0)
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(reader, writer)

    async with run_server(talk, server, **options):
        yield server


def answer_and_close(answer: bytes) -> Talk:
    """Send this answer, then close the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    return talk


def resolve_to(*addresses: str) -> LookUp:
    """A look-up that returns these addresses for every name."""

    async def look_up(host: str, port: int) -> list[str]:
        return [*addresses]

    return look_up


async def send(pool: Pool, url: URL, method: str = "GET", **more: Any) -> HttpResponse:
    options: dict[str, Any] = {"headers": {}, "connect_seconds": 5.0, **more}
    return await pool.request(method, url, **options)


async def fetch(pool: Pool, url: URL, method: str = "GET", **more: Any) -> bytes:
    response = await send(pool, url, method, **more)
    try:
        return bytes(await response.read(10_000_000))
    finally:
        response.close()


@dataclass
class FakeProxy:
    """The address of an HTTP proxy, what it received, and the names that it can resolve."""

    url: str = ""
    heads: list[bytes] = field(default_factory=list[bytes])
    names: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    answer: bytes = b""
    """If set, the proxy sends this answer and forwards nothing."""
    established: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"

    @property
    def lines(self) -> list[bytes]:
        """The request lines that the proxy received."""
        return [head.split(b"\r\n", 1)[0] for head in self.heads]


@asynccontextmanager
async def serve_proxy(**options: Any) -> AsyncIterator[FakeProxy]:
    """Forward requests in absolute form, and tunnel CONNECT, to the addresses of `Proxy.names`."""
    proxy = FakeProxy()
    async with AsyncExitStack() as stack:
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            stack.callback(writer.transport.abort)
            with suppress(OSError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                proxy.heads.append(head)
                method, target, _ = head.split(b" ", 2)
                if proxy.answer:
                    writer.write(proxy.answer)
                    return
                url = URL(target.decode() if method != b"CONNECT" else f"https://{target.decode()}")
                there_reader, there = await asyncio.open_connection(
                    *proxy.names.get(url.host or "", (url.host or "", url.port or 80))
                )
                stack.callback(there.transport.abort)
                if method == b"CONNECT":
                    writer.write(proxy.established)
                else:
                    there.write(head.replace(target, url.raw_path_qs.encode(), 1))
                tasks.add(asyncio.create_task(pipe(reader, there)))
                tasks.add(asyncio.create_task(pipe(there_reader, writer)))

        async def pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(65536):
                    target.write(data)
            target.transport.abort()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
        stack.callback(listener.close)
        proxy.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)


def make_certificate(folder: Path, name: str, *, valid_for: timedelta = timedelta(days=1)) -> dict[str, Any]:
    """Write a key and a self-signed certificate for this name. Return the options for uvicorn."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + valid_for)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, encryption_algorithm=serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    (folder / "certificate.pem").write_bytes(made.public_bytes(pem))
    return {"ssl_keyfile": str(folder / "key.pem"), "ssl_certfile": str(folder / "certificate.pem")}
