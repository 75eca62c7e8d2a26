"""Logging in to a remote server, against a real authorization server on loopback."""

import asyncio
import json
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click
import httpx2
import msgspec
import pytest
from click.testing import CliRunner
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast.cli.login import login
from holdfast.connect.egress import look_up
from holdfast.connect.login import log_in
from holdfast.connect.logins import LOGINS, Kept, login_file, read_login, write_login
from holdfast.connect.oauth import Login, Provider
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.server import Http, ServerSpec, Source
from holdfast.wire.http.client import Pool
from tests.connect.conftest import HostFactory
from tests.connect.web import Plain, data_dir, free_port, http, linked, serving, terms

pytestmark = pytest.mark.anyio


class Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Says yes to everybody, and keeps what it gave out in memory."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.good: set[str] = set()
        self.refresh: set[str] = set()
        self.given = 0
        self.tried = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code="code",
            scopes=[],
            expires_at=2e9,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        return self._give()

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        self.tried += 1
        known = refresh_token in self.refresh
        return RefreshToken(token=refresh_token, client_id=client.client_id, scopes=[]) if known else None

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        return self._give()

    async def load_access_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="c", scopes=[]) if token in self.good else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.good.discard(token.token)

    def _give(self) -> OAuthToken:
        self.given += 1
        self.good, self.refresh = {f"access-{self.given}"}, {f"refresh-{self.given}"}
        return OAuthToken(
            access_token=f"access-{self.given}", refresh_token=f"refresh-{self.given}", expires_in=3600
        )


@dataclass
class Place:
    """A protected server, and who decides."""

    url: str
    authority: Authority

    @property
    def spec(self) -> ServerSpec:
        return ServerSpec(name="web", source=Source.USER, transport=Http(url=f"{self.url}/mcp"))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    port, authority = free_port(), Authority()
    url = f"http://127.0.0.1:{port}"
    server = MCPServer(
        "protected",
        auth_server_provider=authority,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(url),
            resource_server_url=AnyHttpUrl(f"{url}/mcp"),
            validate_token_resource=False,
            client_registration_options=ClientRegistrationOptions(enabled=True),
        ),
    )

    @server.tool()
    def secret() -> str:
        """Tell."""
        return "42"

    async with serving(server.streamable_http_app(), port):
        yield Place(url, authority)


class Browser:
    """A person who says yes, in another task."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, url: str) -> None:
        self._tasks.append(asyncio.create_task(self._go(url)))

    async def _go(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            back = (await client.get(url)).headers["location"]
            forged = back.replace(parse_qs(urlsplit(back).query)["state"][0], "forged")
            assert (await client.get(forged)).status_code == 404
            assert (await client.get(back)).status_code == 200


@asynccontextmanager
async def logged_in(place: Place, folder: Path) -> AsyncIterator[Path]:
    outcome = await log_in(place.spec, folder=folder, show=Browser().open, seconds=20)
    assert (outcome.server, outcome.asked) == ("protected", True)
    yield login_file(folder, place.spec.transport.url if isinstance(place.spec.transport, Http) else "")


async def test_without_a_login_the_server_is_left_out_and_the_reason_says_what_to_do(
    make_host: HostFactory, folder: Path, place: Place
):
    async with linked(make_host, folder, {"web": http(place.url)}, terms()) as session:
        reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert reasons == [
        "Could not connect to 'web': 'web' wants to know who you are. Run: holdfast servers login web"
    ]


async def test_a_login_is_kept_for_its_owner_alone_and_used_by_every_session(
    make_host: HostFactory, folder: Path, place: Place
):
    logins = data_dir(make_host) / LOGINS
    async with (
        logged_in(place, logins) as file,
        linked(make_host, folder, {"web": http(place.url)}, terms()) as session,
    ):
        answers = await asyncio.gather(*(session.call("web.secret") for _ in range(5)))
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, logins)]

    assert [answer.text for answer in answers] == ["42"] * 5
    assert modes == [0o600, 0o700]


@pytest.mark.parametrize("noticed_by", ["us", "the server"])
async def test_a_token_that_ran_out_is_refreshed_by_itself(
    make_host: HostFactory, folder: Path, place: Place, noticed_by: str
):
    async with logged_in(place, data_dir(make_host) / LOGINS) as file:
        if noticed_by == "us":
            kept = read_login(file)
            assert kept is not None
            file.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, expires_at=1.0)))
        place.authority.good.clear()
        async with linked(make_host, folder, {"web": http(place.url)}, terms()) as session:
            first = await session.call("web.secret")
            place.authority.good.clear()
            second = await session.call("web.secret")
        kept = read_login(file)

    assert (first.text, second.text, place.authority.given) == ("42", "42", 3)
    assert kept is not None
    assert kept.tokens["refresh_token"] == "refresh-3"


async def test_a_login_that_was_taken_back_asks_for_a_new_one(
    make_host: HostFactory, folder: Path, place: Place
):
    async with (
        logged_in(place, data_dir(make_host) / LOGINS),
        linked(make_host, folder, {"web": http(place.url)}, terms()) as session,
    ):
        place.authority.good.clear()
        place.authority.refresh.clear()
        refused = await session.call("web.secret")
        tried = place.authority.tried
        again = await asyncio.gather(*(session.call("web.secret") for _ in range(3)))

    assert (refused.code, "holdfast servers login web" in refused.message) == ("LOGIN_NEEDED", True)
    assert (tried, place.authority.tried <= 4, {answer.code for answer in again}) == (
        1,
        True,
        {"LOGIN_NEEDED"},
    )


@pytest.mark.parametrize("sessions", [1, 5])
async def test_however_many_are_refused_at_once_a_token_is_refreshed_once(
    make_host: HostFactory, folder: Path, place: Place, sessions: int
):
    async with (
        logged_in(place, data_dir(make_host) / LOGINS),
        make_host({"web": http(place.url)}, terms=terms()) as host,
        AsyncExitStack() as stack,
    ):
        some = [await stack.enter_async_context(host.session(cwd=folder)) for _ in range(sessions)]
        before = [(await session.call("web.secret")).text for session in some]
        place.authority.good.clear()
        after = await asyncio.gather(*(session.call("web.secret") for session in some * (5 // sessions)))

    assert (before, [answer.text for answer in after]) == (["42"] * sessions, ["42"] * 5)
    assert (place.authority.given, place.authority.tried) == (2, 1)


async def test_a_new_login_is_found_by_the_sessions_that_are_open(
    make_host: HostFactory, folder: Path, place: Place
):
    logins = data_dir(make_host) / LOGINS
    async with (
        logged_in(place, logins),
        linked(make_host, folder, {"web": http(place.url)}, terms()) as session,
    ):
        first = await session.call("web.secret")
        async with logged_in(place, logins):  # the server forgets the old one
            second = await session.call("web.secret")

    assert (first.text, second.text, place.authority.tried) == ("42", "42", 0)


async def test_a_server_that_a_client_brought_gets_no_login_of_ours(
    make_host: HostFactory, folder: Path, place: Place
):
    brought: Json = {"type": "http", "name": "web", "url": f"{place.url}/mcp", "headers": []}
    async with (
        logged_in(place, data_dir(make_host) / LOGINS),
        make_host({}, terms=terms(), HOLDFAST_SERVERS_REACHABLE="127.0.0.1") as host,
        host.session(cwd=folder, servers=[brought]) as session,
    ):
        reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert [
        reason.endswith("wants another Authorization header than its entry gives (401).")
        for reason in reasons
    ] == [True]


async def test_a_login_that_is_refused_in_the_browser_says_so(tmp_path: Path, place: Place):
    class Refusing(Browser):
        async def _go(self, url: str) -> None:
            asked = parse_qs(urlsplit(url).query)
            async with httpx2.AsyncClient() as client:
                params = {"error": "access_denied", "state": asked["state"][0]}
                await client.get(asked["redirect_uri"][0], params=params)

    with pytest.raises(HoldfastError, match=r"access_denied") as refused:
        await log_in(place.spec, folder=tmp_path, show=Refusing().open, seconds=20)

    assert (refused.value.code.name, [*tmp_path.glob("*.json")]) == ("LOGIN_NEEDED", [])


async def test_a_server_that_wants_no_login_says_so(tmp_path: Path):
    shown: list[str] = []
    async with serving(Plain()) as url:
        spec = ServerSpec(name="open", source=Source.USER, transport=Http(url=f"{url}/mcp"))
        outcome = await log_in(spec, folder=tmp_path, show=shown.append)

    assert (outcome.asked, shown) == (False, [])


async def test_the_command_opens_the_browser_and_keeps_the_login(
    make_host: HostFactory, folder: Path, place: Place, monkeypatch: pytest.MonkeyPatch
):
    settings = make_host({}).settings
    settings.servers.user_file.write_text(json.dumps({"mcpServers": {"web": http(place.url)}}))
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(settings.data_dir))
    monkeypatch.setenv("HOLDFAST_SERVERS_USER_FILE", str(settings.servers.user_file))
    monkeypatch.chdir(folder)
    loop = asyncio.get_running_loop()
    browser = Browser()

    def launch(url: str) -> None:
        loop.call_soon_threadsafe(browser.open, url)

    monkeypatch.setattr(click, "launch", launch)
    done = await asyncio.to_thread(CliRunner().invoke, login, ["web"])
    unknown = await asyncio.to_thread(CliRunner().invoke, login, ["wob"])

    assert (done.exit_code, done.stdout) == (0, "You are logged in to web.\n"), done.output
    assert isinstance(unknown.exception, HoldfastError)
    async with linked(make_host, folder, {"web": http(place.url)}, terms()) as session:
        assert (await session.call("web.secret")).text == "42"


# Where a login is refreshed


@asynccontextmanager
async def kept_login(file: Path, tokens_at: str, seconds: float = 5.0) -> AsyncIterator[Login]:
    """One that ran out, of an authorization server that gives tokens there."""
    url = "http://127.0.0.1:9/mcp"
    kept = Kept(
        url=url,
        tokens={"access_token": "old", "token_type": "Bearer", "refresh_token": "refresh"},
        expires_at=1.0,
        client={"client_id": "c", "redirect_uris": ["http://127.0.0.1/callback"]},
        server={
            "issuer": "http://127.0.0.1:9",
            "authorization_endpoint": "http://127.0.0.1:9/authorize",
            "token_endpoint": tokens_at,
            "response_types_supported": ["code"],
        },
    )
    write_login(file, kept)
    spec = ServerSpec(name="web", source=Source.USER, transport=Http(url=url))
    pool = Pool(look_up, ssl.create_default_context())
    yield Login(spec, Provider(url, file, fresh=False), lambda url: pool, terms(connect_seconds=seconds))
    await pool.close()


async def test_a_redirect_within_the_authorization_server_is_followed_and_its_headers_may_be_odd(
    tmp_path: Path,
):
    asked: list[tuple[str, str, bytes]] = []

    async def token(request: Request) -> Response:
        asked.append((request.url.path, request.headers["accept"], await request.body()))
        if request.url.path == "/token":
            return RedirectResponse("/token/", headers={"x-odd": "é"})
        return JSONResponse({"access_token": "new", "token_type": "Bearer"}, headers={"x-odd": "é"})

    routes = [Route(path, token, methods=["POST"]) for path in ("/token", "/token/")]
    async with (
        serving(Starlette(routes=routes)) as there,
        kept_login(tmp_path / "l", f"{there}/token") as login,
    ):
        shown = [await login.shown() for _ in range(2)]

    assert shown == ["Bearer new"] * 2
    assert [(path, accept) for path, accept, _ in asked] == [
        ("/token", "application/json"),
        ("/token/", "application/json"),
    ]
    assert asked[0][2] == asked[1][2]


@pytest.mark.parametrize(
    ("answer", "why"), [(None, "no answer in time"), (b"", "it hung up"), (b"SSH-2.0\r\n", "no HTTP")]
)
async def test_an_authorization_server_that_fails_is_named_and_holds_up_nobody(
    tmp_path: Path, answer: bytes | None, why: str
):
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    there = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
    async with server, kept_login(tmp_path / "l", there, 0.2) as login:
        failed = await asyncio.gather(login.shown(), login.shown(), return_exceptions=True)

    assert [isinstance(error, HoldfastError) and error.code.name for error in failed] == ["PEER_ERROR"] * 2
    assert [f"{there}, where 'web' has its logins, failed: " in str(error) for error in failed] == [True] * 2
    assert [why in str(error) for error in failed] == [True] * 2


async def test_a_login_that_cannot_be_read_is_none(tmp_path: Path):
    async with kept_login(tmp_path / "l", "no address") as login:
        with pytest.raises(HoldfastError) as refused:
            await login.shown()

    assert refused.value.code.name == "LOGIN_NEEDED"
