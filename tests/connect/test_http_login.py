"""Logging in to a remote server, against a real authorization server on loopback."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

from holdfast.cli.login import login
from holdfast.connect.login import log_in
from holdfast.connect.logins import LOGINS, login_file, read_login
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.server import Http, ServerSpec, Source
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

    assert (refused.code, "holdfast servers login web" in refused.message) == ("LOGIN_NEEDED", True)


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
