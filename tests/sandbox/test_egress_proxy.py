"""The egress proxy, over real sockets and from a real sandbox."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.model.process import Confinement
from holdfast.sandbox.bwrap.egress_policy import Endpoint
from holdfast.sandbox.bwrap.egress_proxy import EgressProxy
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.view import RefusedHost
from tests.sandbox.support import confined, python, run

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serve_site() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A site on loopback that answers every request with its first line; yields its port and the requests."""
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        requests.append(line)
        while await reader.readline() not in (b"\r\n", b""):
            pass
        body = b"you asked: " + line.strip()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], requests


async def send(proxy: EgressProxy, request: bytes) -> bytes:
    """The proxy's answer to these bytes."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    await proxy.serve(listener)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        writer.write_eof()
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        return answer
    finally:
        proxy.close()


async def test_granted_host_is_reached_by_plain_request_and_by_tunnel() -> None:
    async with serve_site() as (port, _):
        grants = Confinement(network=(f"localhost:{port}",), allowed_private_hosts=("localhost",))

        plain = await send(EgressProxy(grants), b"GET http://localhost:%d/a HTTP/1.1\r\n\r\n" % port)
        tunnel = await send(
            EgressProxy(grants), b"CONNECT localhost:%d HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n" % port
        )

    assert plain.endswith(b"you asked: GET /a HTTP/1.1")
    assert tunnel.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")


async def test_host_that_is_not_granted_is_refused_with_the_reason() -> None:
    refused: list[RefusedHost] = []
    async with serve_site() as (port, requests):
        answer = await send(
            EgressProxy(Confinement(network=("other.example",)), on_refused=refused.append),
            b"CONNECT localhost:%d HTTP/1.1\r\n\r\n" % port,
        )

    assert (answer.startswith(b"HTTP/1.1 403 Forbidden"), requests) == (True, [])
    assert refused == [RefusedHost(endpoint=f"localhost:{port}")]
    assert b"was not granted to this server. Add it to the server's network list." in answer


async def test_granted_name_with_a_loopback_address_is_refused() -> None:
    refused: list[RefusedHost] = []
    async with serve_site() as (port, requests):
        answer = await send(
            EgressProxy(Confinement(network=(f"localhost:{port}",)), on_refused=refused.append),
            b"CONNECT localhost:%d HTTP/1.1\r\n\r\n" % port,
        )

    assert (answer.startswith(b"HTTP/1.1 403 Forbidden"), requests) == (True, [])
    assert [host.endpoint for host in refused] == [f"localhost:{port}"]
    assert f"holdfast: {refused[0].reason}\n".encode() in answer
    line = f'add it to this list in the settings, under [servers]: reachable = ["localhost:{port}"]'
    assert f"a loopback address. To allow it, {line}".encode() in answer


async def test_proxy_connects_to_the_address_that_it_checked() -> None:
    answers = iter((["192.0.2.1"], ["127.0.0.1"]))
    resolved: list[str] = []

    async def rebinding(endpoint: Endpoint) -> list[str]:
        found = next(answers)
        resolved.extend(found)
        return found

    async with serve_site() as (port, requests):
        grants = Confinement(network=(f"evil.example:{port}",))
        await send(EgressProxy(grants, rebinding), b"CONNECT evil.example:%d HTTP/1.1\r\n\r\n" % port)
        second = await send(
            EgressProxy(grants, rebinding), b"CONNECT evil.example:%d HTTP/1.1\r\n\r\n" % port
        )

    # One look-up per request: the proxy connects to the address it checked, and refuses the second answer.
    assert (resolved, requests, second.split(b"\r\n")[0]) == (
        ["192.0.2.1", "127.0.0.1"],
        [],
        b"HTTP/1.1 403 Forbidden",
    )


async def test_look_up_that_times_out_is_answered_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def time_out(endpoint: Endpoint) -> list[str]:
        raise TimeoutError

    answer = await send(
        EgressProxy(Confinement(network=("slow.example",)), time_out),
        b"CONNECT slow.example:443 HTTP/1.1\r\n\r\n",
    )

    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway")
    assert b"slow.example:443 cannot be reached: no answer in time." in answer
    assert [record.message for record in caplog.records] == ["egress failed"]


@pytest.mark.parametrize("request_", [b"hello\r\n\r\n", b"x" * 100_000, b"GET / HTTP/1.1\r\n\r\n"])
async def test_malformed_request_is_refused_or_disconnected(request_: bytes) -> None:
    answer = await send(EgressProxy(Confinement()), request_)

    assert answer[:12] in (b"", b"HTTP/1.1 400")


FETCH = """
import sys, urllib.error, urllib.request
for address in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(address, timeout=20).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code)
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.mark.promise("BOX-01")
@pytest.mark.usefixtures("bwrap")
async def test_confined_server_reaches_only_granted_hosts(keeper: Keeper, root: Path) -> None:
    async with serve_site() as (port, requests):
        granted, other = f"http://localhost:{port}/a", f"http://127.0.0.1:{port}/b"
        spec = python(FETCH, granted, other)
        grants = {"network": (f"localhost:{port}",), "allowed_private_hosts": ("localhost",)}

        with_grant = await run(keeper, confined(spec, root, **grants))
        without = await run(keeper, confined(spec, root))

    assert (with_grant.out, without.out) == ("you asked: GET /a HTTP/1.1\n403\n", "URLError\nURLError\n")
    assert requests == [b"GET /a HTTP/1.1\r\n"]


@pytest.mark.usefixtures("bwrap")
async def test_server_with_a_network_grant_inherits_no_extra_descriptor(keeper: Keeper, root: Path) -> None:
    code = "import os; print(sorted(f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)))"

    done = await run(keeper, confined(python(code), root, network=("example.org",)))

    assert done.out == "['0', '1', '2']\n"
