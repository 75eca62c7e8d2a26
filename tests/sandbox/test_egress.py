"""The proxy, over real sockets; and the whole way out of a real sandbox."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.model.launch import Confinement
from holdfast.sandbox.egress import Egress
from holdfast.sandbox.grants import Place
from holdfast.sandbox.keeper import Keeper
from tests.sandbox.support import confined, python, run

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def a_site() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A site on loopback that answers every request with its first line."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        heard.append(line)
        while await reader.readline() not in (b"\r\n", b""):
            pass
        body = b"you asked: " + line.strip()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], heard


async def asked(egress: Egress, request: bytes) -> bytes:
    """What the proxy answers to these bytes."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    await egress.serve(listener)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        writer.write_eof()
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        return answer
    finally:
        egress.close()


async def test_a_granted_host_is_reached_plainly_and_through_a_tunnel() -> None:
    async with a_site() as (port, _):
        grants = Confinement(network=(f"localhost:{port}",), reachable=("localhost",))

        plain = await asked(Egress(grants), b"GET http://localhost:%d/a HTTP/1.1\r\n\r\n" % port)
        tunnel = await asked(
            Egress(grants), b"CONNECT localhost:%d HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n" % port
        )

    assert plain.endswith(b"you asked: GET /a HTTP/1.1")
    assert tunnel.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")


async def test_a_host_that_was_not_granted_is_refused_with_the_reason() -> None:
    async with a_site() as (port, heard):
        answer = await asked(
            Egress(Confinement(network=("other.example",))), b"CONNECT localhost:%d HTTP/1.1\r\n\r\n" % port
        )

    assert (answer.startswith(b"HTTP/1.1 403 Forbidden"), heard) == (True, [])
    assert b"was not granted to this server. Add it to the server's network list." in answer


async def test_a_granted_name_that_leads_inside_is_refused() -> None:
    async with a_site() as (port, heard):
        answer = await asked(
            Egress(Confinement(network=(f"localhost:{port}",))),
            b"CONNECT localhost:%d HTTP/1.1\r\n\r\n" % port,
        )

    assert (answer.startswith(b"HTTP/1.1 403 Forbidden"), heard) == (True, [])
    assert b"a loopback address. The host's settings can allow it: servers.reachable." in answer


async def test_a_name_that_changes_its_address_is_connected_at_the_address_that_was_checked() -> None:
    answers = iter((["192.0.2.1"], ["127.0.0.1"]))
    resolved: list[str] = []

    async def rebinding(place: Place) -> list[str]:
        found = next(answers)
        resolved.extend(found)
        return found

    async with a_site() as (port, heard):
        grants = Confinement(network=(f"evil.example:{port}",))
        await asked(Egress(grants, rebinding), b"CONNECT evil.example:%d HTTP/1.1\r\n\r\n" % port)
        second = await asked(Egress(grants, rebinding), b"CONNECT evil.example:%d HTTP/1.1\r\n\r\n" % port)

    # Resolved once per request: what was checked is what is connected to, and the second answer is refused.
    assert (resolved, heard, second.split(b"\r\n")[0]) == (
        ["192.0.2.1", "127.0.0.1"],
        [],
        b"HTTP/1.1 403 Forbidden",
    )


@pytest.mark.parametrize("request_", [b"hello\r\n\r\n", b"x" * 100_000, b"GET / HTTP/1.1\r\n\r\n"])
async def test_what_is_no_request_is_cut_off(request_: bytes) -> None:
    answer = await asked(Egress(Confinement()), request_)

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
async def test_a_confined_server_reaches_the_hosts_it_was_granted_and_no_others(
    keeper: Keeper, root: Path
) -> None:
    async with a_site() as (port, heard):
        granted, other = f"http://localhost:{port}/a", f"http://127.0.0.1:{port}/b"
        launch = python(FETCH, granted, other)
        walls = {"network": (f"localhost:{port}",), "reachable": ("localhost",)}

        with_grant = await run(keeper, confined(launch, root, **walls))
        without = await run(keeper, confined(launch, root))

    assert (with_grant.out, without.out) == ("you asked: GET /a HTTP/1.1\n403\n", "URLError\nURLError\n")
    assert heard == [b"GET /a HTTP/1.1\r\n"]


@pytest.mark.usefixtures("bwrap")
async def test_the_way_out_is_the_servers_only_descriptor_more_and_closes_with_it(
    keeper: Keeper, root: Path
) -> None:
    code = "import os; print(sorted(f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)))"

    done = await run(keeper, confined(python(code), root, network=("example.org",)))

    assert done.out == "['0', '1', '2']\n"
