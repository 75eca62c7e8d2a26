"""Attack 28: a remote server's OAuth metadata or redirect names a private address, or a name changes its address."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.connect.http.login import log_in
from holdfast.connect.http.oauth import LoginProvider
from holdfast.connect.http.pools import Pool
from holdfast.connect.http.response import UnreachableError
from holdfast.connect.http.url import parse_url
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model.blocked_addresses import why_address_blocked
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Source
from tests.connect.web import ScriptedServer, serve

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def inner() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A service at a private address that must not be reached, and the requests that it received."""
    asked: list[bytes] = []

    async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(come, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


@pytest.fixture
def out_there(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the attacker's server, which this machine's resolver knows."""
    real = socket.getaddrinfo

    def look_up(host: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return real("127.0.0.1" if name == "evil.example.com" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return "evil.example.com"


def evil(kind: str, inside: str) -> ScriptedServer:
    """A server that requires a login and names a private address for a part of it."""

    async def answer(scripted: ScriptedServer, request: Request, message: dict[str, Any]) -> Response:
        own = f"{request.url.scheme}://{request.url.netloc}"
        if request.method == "POST" and kind == "a redirect":
            return RedirectResponse(f"{inside}/latest/meta-data")
        if request.url.path == "/resource":
            servers = [inside if kind == "the authorization server" else own]
            return JSONResponse({"resource": f"{own}/mcp", "authorization_servers": servers})
        if request.url.path.startswith("/.well-known/"):
            return JSONResponse(
                {
                    "issuer": own,
                    "authorization_endpoint": f"{own}/authorize",
                    "token_endpoint": f"{own}/token",
                    "registration_endpoint": f"{inside}/register",
                    "response_types_supported": ["code"],
                }
            )
        where = f"{inside if kind == 'the metadata' else own}/resource"
        return Response(status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where}"'})

    return ScriptedServer(answer)


KINDS = ["the metadata", "the authorization server", "the registration", "a redirect"]


@pytest.mark.parametrize("kind", KINDS)
async def test_no_request_goes_to_a_private_address_that_the_server_names(
    tmp_path: Path, out_there: str, kind: str
):
    async with inner() as (inside, asked), serve(evil(kind, inside)) as url:
        spec = ServerSpec(
            name="evil", source=Source.USER, transport=Http(url=f"{url.replace('127.0.0.1', out_there)}/mcp")
        )
        with pytest.raises(HoldfastError) as refused:
            await log_in(spec, folder=tmp_path, on_login_page=print, seconds=10)

    told = "which is not followed" if kind == "a redirect" else "which may not be reached"
    assert (told in refused.value.message, asked) == (True, [])


@pytest.mark.parametrize("kind", KINDS)
async def test_control_without_the_egress_check_the_request_is_sent(
    tmp_path: Path, out_there: str, kind: str
):
    async with inner() as (inside, asked), serve(evil(kind, inside)) as url:
        target = f"{url.replace('127.0.0.1', out_there)}/mcp"
        metadata = OAuthClientMetadata(redirect_uris=[AnyUrl("http://127.0.0.1/callback")])
        storage = LoginProvider(target, tmp_path / "login.json", obtained=ObtainedSecrets())
        login = OAuthClientProvider(target, metadata, storage)
        async with httpx2.AsyncClient(auth=login, follow_redirects=kind == "a redirect") as client:
            with suppress(OAuthFlowError):
                await client.post(target, json={})

    assert len(asked) >= 1


async def test_name_whose_address_changes_after_the_check_is_not_reached():
    answers = iter(["127.0.0.2", "127.0.0.1"])  # the first stands in for one outside; nothing listens there
    tried: list[str] = []

    async def look_up(host: str, port: int) -> list[str]:
        tried.append(next(answers))
        return tried[-1:]

    async with inner() as (inside, asked):
        port = int(inside.rpartition(":")[2])
        policy = AddressPolicy(public_only=True, reachable=("evil.example.com",))
        pool = Pool(policy, ssl.create_default_context(), look_up=look_up)
        url = parse_url(f"http://evil.example.com:{port}/")
        with pytest.raises(UnreachableError):
            await pool.request("GET", url, headers={}, connect_seconds=0.3)
        await pool.close()

    assert (tried, asked) == (["127.0.0.2"], [])


async def test_control_checking_the_name_and_connecting_by_name_reaches_a_private_address():
    answers = iter(["93.184.216.34", "127.0.0.1"])
    async with inner() as (inside, asked):
        checked = why_address_blocked(ipaddress.ip_address(next(answers)))
        _, writer = await asyncio.open_connection(next(answers), int(inside.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await writer.drain()
        writer.close()
        async with asyncio.timeout(5):
            while not asked:
                await asyncio.sleep(0.01)

    assert (checked, asked) == (None, [b"GET / HTTP/1.1\r\n"])
