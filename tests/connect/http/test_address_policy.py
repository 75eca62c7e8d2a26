"""Which addresses remote links may connect to. The address is checked when the connection is made."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.host.open_options import OpenOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.own_ports import hold_port, own_ports
from holdfast.model.trust import Trust
from tests.connect.conftest import HostFactory, open_for_block
from tests.connect.http.raw import make_certificate
from tests.connect.web import ScriptedServer, connect_options, http_entry, serve

pytestmark = pytest.mark.anyio

NAME = "tools.example.com"


class FakeResolver:
    """Replaces the system's resolver for some names during a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._known: dict[str, list[str]] = {}
        real = socket.getaddrinfo

        def look_up(host: Any, *rest: Any, **more: Any) -> Any:
            addresses = self._known.get(host.decode() if isinstance(host, bytes) else host)
            if not addresses:
                return real(host, *rest, **more)
            address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
            return real(address, *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    def set(self, host: str, *addresses: str) -> None:
        """Let successive look-ups of the host return these addresses in turn."""
        self._known[host] = [*addresses]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> FakeResolver:
    return FakeResolver(monkeypatch)


@asynccontextmanager
async def count_connections() -> AsyncIterator[tuple[int, list[int]]]:
    """Listen on a port. Yields the port, and a list with an item for each connection."""
    count: list[int] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count.append(1)
        writer.close()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], count


def entry_by_name(url: str, **more: Any) -> dict[str, Any]:
    return http_entry(url.replace("127.0.0.1", NAME), **more)


CASES = {
    "direct: the user's own": (Trust.DIRECT, False, "", True),
    "sandboxed": (Trust.SANDBOXED, False, "", False),
    "brought by a client": (Trust.DIRECT, True, "", False),
    "allowed by the host": (Trust.SANDBOXED, False, NAME, True),
}


@pytest.mark.promise("RES-05")
@pytest.mark.parametrize("case", CASES)
async def test_link_limited_to_public_addresses_refuses_a_name_with_a_private_one(
    make_host: HostFactory, folder: Path, names: FakeResolver, case: str
):
    trust, brought, reachable, connects = CASES[case]
    names.set(NAME, "127.0.0.1")
    scripted = ScriptedServer()
    async with serve(scripted) as url:
        entry = (
            entry_by_name(url, trust_level="sandboxed")
            if not brought
            else {"name": "web", **entry_by_name(url, headers=[])}
        )
        servers = {} if brought else {"web": entry}
        client_brings: tuple[Json, ...] = (entry,) if brought else ()
        async with (
            make_host(servers, options=connect_options(), HOLDFAST_SERVERS_REACHABLE=reachable) as host,
            open_for_block(
                host, OpenOptions(cwd=folder, trust=trust, client_servers=client_brings)
            ) as session,
        ):
            reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    refused = (
        f"Could not connect to 'web': {NAME} is at 127.0.0.1, a loopback address, which may not be reached"
    )
    assert (bool(scripted.requests), [reason.partition(" from here")[0] for reason in reasons]) == (
        (True, []) if connects else (False, [refused])
    )


@pytest.mark.promise("RES-05")
@pytest.mark.parametrize(
    ("trust", "port_of", "connects"),
    [
        (Trust.DIRECT, "", True),
        (Trust.SANDBOXED, "", False),
        (Trust.DIRECT, "this process", False),
        (Trust.DIRECT, "another process", False),
    ],
    ids=["direct", "sandboxed", "Holdfast's own port", "port of another process"],
)
async def test_server_that_an_editor_brings_to_a_direct_session_may_be_on_loopback_as_written(
    make_host: HostFactory, folder: Path, *, trust: Trust, port_of: str, connects: bool
):
    scripted = ScriptedServer()
    async with serve(scripted) as url:
        port = url.rpartition(":")[2].partition("/")[0]
        own = {"HOLDFAST_GATEWAY_PORT": port} if port_of == "this process" else {}
        async with make_host({}, options=connect_options(), **own) as host, AsyncExitStack() as stack:
            held = hold_port(host.settings.data_dir, int(port))
            stack.enter_context(held if port_of == "another process" else nullcontext())
            options = OpenOptions(cwd=folder, trust=trust, client_servers=(_brought(url),))
            session = await stack.enter_async_context(open_for_block(host, options))
            reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert (bool(scripted.requests), bool(reasons)) == (connects, not connects), reasons


def _brought(url: str) -> Json:
    return {"name": "web", **http_entry(url, headers=[])}


@pytest.mark.promise("RES-05")
@pytest.mark.parametrize("kind", ["redirect", "login"])
async def test_server_that_an_editor_brings_cannot_lead_to_another_local_address(
    make_host: HostFactory, folder: Path, kind: str
):
    async with count_connections() as (port, count):
        other = f"http://127.0.0.1:{port}/"

        async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response:
            if kind == "redirect":
                return RedirectResponse(other)
            return Response(
                status_code=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{other}"'}
            )

        async with (
            serve(ScriptedServer(answer)) as url,
            make_host({}, options=connect_options()) as host,
            open_for_block(host, OpenOptions(cwd=folder, client_servers=(_brought(url),))) as session,
        ):
            reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert (len(reasons), count) == (1, []), reasons


def test_ports_are_known_while_a_process_holds_them(tmp_path: Path):
    with hold_port(tmp_path, 8080), hold_port(tmp_path, 8080), hold_port(tmp_path, 9000):
        held = own_ports(tmp_path)

    assert (held, own_ports(tmp_path), own_ports(tmp_path / "none")) == ({8080, 9000}, set(), set())


async def test_only_the_written_port_on_loopback_is_allowed(names: FakeResolver):
    policy = AddressPolicy(public_only=True).allowing("127.0.0.1", 8080)

    assert policy.allows_any_address("127.0.0.1", 8080)
    assert not any(
        policy.allows_any_address(host, port)
        for host, port in (("127.0.0.1", 8081), ("localhost", 8080), ("127.0.0.2", 8080))
    )


OUTSIDE, INSIDE = "93.184.216.34", "169.254.169.254"


def test_only_public_addresses_of_a_host_are_tried():
    mixed = ["127.0.0.1", OUTSIDE, "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "2606:2800:220:1::1"]

    assert AddressPolicy(public_only=True).select(NAME, 443, mixed) == [OUTSIDE, "2606:2800:220:1::1"]


@pytest.mark.parametrize(
    "address", [INSIDE, "127.0.0.1", "10.1.2.3", "::1", "fd00::1", "168.63.129.16", "0.0.0.0", "none"]
)
def test_private_address_is_refused(address: str):
    with pytest.raises(HoldfastError, match=r"may not be reached"):
        AddressPolicy(public_only=True).select(NAME, 80, [address])


@pytest.mark.promise("RES-05")
@pytest.mark.parametrize("target", ["http://127.0.0.1:{port}/", "http://169.254.169.254/latest/meta-data/"])
async def test_redirect_to_a_private_address_is_not_followed(
    make_host: HostFactory, folder: Path, names: FakeResolver, target: str
):
    names.set(NAME, "127.0.0.1")
    async with count_connections() as (port, count):

        async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response:
            return RedirectResponse(target.format(port=port))

        async with serve(ScriptedServer(answer)) as url:
            entry = entry_by_name(url, trust_level="sandboxed")
            async with (
                make_host({"web": entry}, options=connect_options(), HOLDFAST_SERVERS_REACHABLE=NAME) as host,
                host.session(cwd=folder, trust=Trust.SANDBOXED) as session,
            ):
                reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert ("which is not followed" in reasons[0], count) == (True, [])


@pytest.mark.parametrize("name", [NAME, "other.example.com"])
async def test_certificate_is_checked_for_the_name_although_the_address_was_resolved_first(
    make_host: HostFactory, folder: Path, names: FakeResolver, monkeypatch: pytest.MonkeyPatch, name: str
):
    connects = name == NAME
    names.set(NAME, "127.0.0.1")
    options = make_certificate(folder, name)
    monkeypatch.setenv("SSL_CERT_FILE", options["ssl_certfile"])
    async with serve(ScriptedServer(), **options) as url:
        entry = entry_by_name(url.replace("http:", "https:"), trust_level="sandboxed")
        async with (
            make_host({"web": entry}, options=connect_options(), HOLDFAST_SERVERS_REACHABLE=NAME) as host,
            host.session(cwd=folder, trust=Trust.SANDBOXED) as session,
        ):
            answer = await session.call("web.go")
            reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert answer.ok is connects
    assert [("cannot be reached" in reason, "certificate" in reason) for reason in reasons] == (
        [] if connects else [(True, True)]
    )


async def test_headers_and_cookies_of_one_server_or_session_never_reach_another(
    make_host: HostFactory, folder: Path
):
    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response:
        response = scripted.default_response(request, message)
        response.set_cookie("who", message["params"]["_meta"]["dev.holdfast/session"]["session_id"])
        return response

    mine, other = ScriptedServer(answer), ScriptedServer()
    async with serve(mine) as one, serve(other) as two:
        servers = {
            "mine": http_entry(one, headers={"Authorization": "Bearer mine"}),
            "other": http_entry(two),
        }
        async with (
            make_host(servers, options=connect_options()) as host,
            host.session(cwd=folder) as first,
            host.session(cwd=folder) as second,
        ):
            for session in (first, second):
                await session.call("mine.go")
                await session.call("other.go")

    assert {headers.get("authorization") for _, headers, _ in mine.requests} == {"Bearer mine"}
    assert {(headers.get("authorization"), headers.get("cookie")) for _, headers, _ in other.requests} == {
        (None, None)
    }
    assert [headers["cookie"] for headers, _ in mine.calls()] == [
        f"who={session.context.session_id}" for session in (first, second)
    ]


@pytest.mark.slow
def test_host_with_local_servers_only_does_not_import_http_libraries(tmp_path: Path):
    program = f"""
import asyncio, sys
from pathlib import Path
from holdfast.host.host import Host
from holdfast.store.memory import MemoryStore
from tests.connect.conftest import counter_entry

async def main():
    async with Host(servers={{"c": counter_entry()}}, store=MemoryStore()) as host:
        async with host.session(cwd={str(tmp_path)!r}) as session:
            assert (await session.call("c.count")).text == "1"
    heavy = {{"aiohttp", "yarl", "mcp", "mcp_types", "httpx2", "truststore", "pydantic", "anyio"}} & set(sys.modules)
    print(sorted(heavy))

asyncio.run(main())
"""
    root = str(Path(__file__).parents[3])
    environ = {
        "PYTHONPATH": root,
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "HOLDFAST_DATA_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=50, check=False
    )

    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
