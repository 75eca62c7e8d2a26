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

from holdfast.cli import output
from holdfast.cli.servers.login import login, logout
from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.connect.http.login import log_in
from holdfast.connect.http.login_store import LOGIN_FOLDER, SavedLogin, login_file, read_login, write_login
from holdfast.connect.http.oauth import LoginProvider, OAuthCredentials
from holdfast.connect.http.pools import Pool
from holdfast.host.open_options import OpenOptions
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.server import Http, ServerSpec, Source
from tests.connect.conftest import HostFactory, open_for_block
from tests.connect.web import (
    ScriptedServer,
    connect_options,
    data_dir,
    free_port,
    http_entry,
    open_session,
    serve,
)

pytestmark = pytest.mark.anyio


class AuthorizationServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Accepts every login, and keeps its tokens in memory."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access_tokens: set[str] = set()
        self.refresh_tokens: set[str] = set()
        self.issued = 0
        self.refresh_attempts = 0

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
        return self._issue()

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        self.refresh_attempts += 1
        known = refresh_token in self.refresh_tokens
        return RefreshToken(token=refresh_token, client_id=client.client_id, scopes=[]) if known else None

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        return self._issue()

    async def load_access_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="c", scopes=[]) if token in self.access_tokens else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access_tokens.discard(token.token)

    def _issue(self) -> OAuthToken:
        self.issued += 1
        self.access_tokens, self.refresh_tokens = {f"access-{self.issued}"}, {f"refresh-{self.issued}"}
        return OAuthToken(
            access_token=f"access-{self.issued}", refresh_token=f"refresh-{self.issued}", expires_in=3600
        )


@dataclass
class ProtectedServer:
    """A protected server and its authorization server."""

    url: str
    authority: AuthorizationServer

    @property
    def spec(self) -> ServerSpec:
        return ServerSpec(name="web", source=Source.USER, transport=Http(url=f"{self.url}/mcp"))


@pytest.fixture
async def protected() -> AsyncIterator[ProtectedServer]:
    port, authority = free_port(), AuthorizationServer()
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
        """Return the secret."""
        return "42"

    async with serve(server.streamable_http_app(), port):
        yield ProtectedServer(url, authority)


class Browser:
    """Follows the login page to the end, in another task, like a user who agrees."""

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
async def log_in_with_browser(protected: ProtectedServer, folder: Path) -> AsyncIterator[Path]:
    result = await log_in(protected.spec, folder=folder, on_login_page=Browser().open, seconds=20)
    assert (result.server, result.was_required) == ("protected", True)
    yield login_file(
        folder, protected.spec.transport.url if isinstance(protected.spec.transport, Http) else ""
    )


async def test_server_without_a_login_is_left_out_and_the_reason_says_what_to_do(
    make_host: HostFactory, folder: Path, protected: ProtectedServer
):
    async with open_session(
        make_host, folder, {"web": http_entry(protected.url)}, connect_options()
    ) as session:
        reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert reasons == ["Could not connect to 'web': 'web' requires a login. Run: holdfast servers login web"]


async def test_login_is_readable_by_its_owner_only_and_used_by_every_session(
    make_host: HostFactory, folder: Path, protected: ProtectedServer
):
    logins = data_dir(make_host) / LOGIN_FOLDER
    async with (
        log_in_with_browser(protected, logins) as file,
        open_session(make_host, folder, {"web": http_entry(protected.url)}, connect_options()) as session,
    ):
        answers = await asyncio.gather(*(session.call("web.secret") for _ in range(5)))
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, logins)]

    assert [answer.text for answer in answers] == ["42"] * 5
    assert modes == [0o600, 0o700]


@pytest.mark.parametrize("noticed_by", ["us", "the server"])
async def test_expired_token_is_refreshed_automatically(
    make_host: HostFactory, folder: Path, protected: ProtectedServer, noticed_by: str
):
    async with log_in_with_browser(protected, data_dir(make_host) / LOGIN_FOLDER) as file:
        if noticed_by == "us":
            saved = read_login(file)
            assert saved is not None
            file.write_bytes(msgspec.json.encode(msgspec.structs.replace(saved, expires_at=1.0)))
        protected.authority.access_tokens.clear()
        async with open_session(
            make_host, folder, {"web": http_entry(protected.url)}, connect_options()
        ) as session:
            first = await session.call("web.secret")
            protected.authority.access_tokens.clear()
            second = await session.call("web.secret")
        saved = read_login(file)

    assert (first.text, second.text, protected.authority.issued) == ("42", "42", 3)
    assert saved is not None
    assert saved.tokens["refresh_token"] == "refresh-3"


async def test_revoked_login_asks_for_a_new_one(
    make_host: HostFactory, folder: Path, protected: ProtectedServer
):
    async with (
        log_in_with_browser(protected, data_dir(make_host) / LOGIN_FOLDER),
        open_session(make_host, folder, {"web": http_entry(protected.url)}, connect_options()) as session,
    ):
        protected.authority.access_tokens.clear()
        protected.authority.refresh_tokens.clear()
        refused = await session.call("web.secret")
        attempts = protected.authority.refresh_attempts
        again = await asyncio.gather(*(session.call("web.secret") for _ in range(3)))

    assert (refused.code, refused.message) == (
        "LOGIN_NEEDED",
        "'web' did not accept the saved login. Run: holdfast servers login web",
    )
    assert (attempts, protected.authority.refresh_attempts <= 4, {answer.code for answer in again}) == (
        1,
        True,
        {"LOGIN_NEEDED"},
    )


@pytest.mark.parametrize("sessions", [1, 5])
async def test_token_is_refreshed_once_however_many_calls_are_refused(
    make_host: HostFactory, folder: Path, protected: ProtectedServer, sessions: int
):
    async with (
        log_in_with_browser(protected, data_dir(make_host) / LOGIN_FOLDER),
        make_host({"web": http_entry(protected.url)}, options=connect_options()) as host,
        AsyncExitStack() as stack,
    ):
        some = [await stack.enter_async_context(host.session(cwd=folder)) for _ in range(sessions)]
        before = [(await session.call("web.secret")).text for session in some]
        protected.authority.access_tokens.clear()
        after = await asyncio.gather(*(session.call("web.secret") for session in some * (5 // sessions)))

    assert (before, [answer.text for answer in after]) == (["42"] * sessions, ["42"] * 5)
    assert (protected.authority.issued, protected.authority.refresh_attempts) == (2, 1)


async def test_open_sessions_use_a_new_login(
    make_host: HostFactory, folder: Path, protected: ProtectedServer
):
    logins = data_dir(make_host) / LOGIN_FOLDER
    async with (
        log_in_with_browser(protected, logins),
        open_session(make_host, folder, {"web": http_entry(protected.url)}, connect_options()) as session,
    ):
        first = await session.call("web.secret")
        async with log_in_with_browser(protected, logins):  # the server forgets the old login
            second = await session.call("web.secret")

    assert (first.text, second.text, protected.authority.refresh_attempts) == ("42", "42", 0)


async def test_server_that_a_client_brought_gets_no_saved_login(
    make_host: HostFactory, folder: Path, protected: ProtectedServer
):
    brought: Json = {"type": "http", "name": "web", "url": f"{protected.url}/mcp", "headers": []}
    async with (
        log_in_with_browser(protected, data_dir(make_host) / LOGIN_FOLDER),
        make_host({}, options=connect_options(), HOLDFAST_SERVERS_REACHABLE="127.0.0.1") as host,
        open_for_block(host, OpenOptions(cwd=folder, client_servers=(brought,))) as session,
    ):
        reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert [
        reason.endswith("the Authorization header in the server's entry is missing or not accepted.")
        for reason in reasons
    ] == [True]


async def test_login_that_is_refused_in_the_browser_is_reported(tmp_path: Path, protected: ProtectedServer):
    class Refusing(Browser):
        async def _go(self, url: str) -> None:
            asked = parse_qs(urlsplit(url).query)
            async with httpx2.AsyncClient() as client:
                params = {"error": "access_denied", "state": asked["state"][0]}
                await client.get(asked["redirect_uri"][0], params=params)

    with pytest.raises(HoldfastError, match=r"access_denied") as refused:
        await log_in(protected.spec, folder=tmp_path, on_login_page=Refusing().open, seconds=20)

    assert (refused.value.code.name, [*tmp_path.glob("*.json")]) == ("LOGIN_NEEDED", [])


async def test_what_the_login_page_says_cannot_control_the_terminal(
    tmp_path: Path,
    protected: ProtectedServer,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    said = "\x1b]0;a\x07\x1b[2J\u202eno\r\nHint: run this"

    class Refusing(Browser):
        async def _go(self, url: str) -> None:
            asked = parse_qs(urlsplit(url).query)
            async with httpx2.AsyncClient() as client:
                params = {"error_description": said, "error": "x", "state": asked["state"][0]}
                answer = await client.get(asked["redirect_uri"][0], params=params)
            assert "run this" not in answer.text

    with pytest.raises(HoldfastError) as refused:
        await log_in(protected.spec, folder=tmp_path, on_login_page=Refusing().open, seconds=20)
    output.print_error(refused.value)
    printed = capsys.readouterr().err

    assert "the login page refused the login (" in printed
    assert [mark in printed for mark in ("\x1b", "\x07", "\u202e", "\r", "\nHint: run this")] == [False] * 5
    assert "\x1b[2J" in caplog.text, "control: the library got it as the page said it"


async def test_server_that_requires_no_login_is_reported(tmp_path: Path):
    shown: list[str] = []
    async with serve(ScriptedServer()) as url:
        spec = ServerSpec(name="open", source=Source.USER, transport=Http(url=f"{url}/mcp"))
        result = await log_in(spec, folder=tmp_path, on_login_page=shown.append)

    assert (result.was_required, shown) == (False, [])


async def test_login_command_opens_the_browser_and_saves_the_login(
    make_host: HostFactory, folder: Path, protected: ProtectedServer, monkeypatch: pytest.MonkeyPatch
):
    settings = make_host({}).settings
    settings.servers.user_file.write_text(json.dumps({"mcpServers": {"web": http_entry(protected.url)}}))
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

    assert (done.exit_code, done.stdout) == (0, "Logged in to web.\n"), done.output
    assert "The remote server 'web' asks you to log in here:\n  http://127.0.0.1:" in done.stderr
    assert isinstance(unknown.exception, HoldfastError)
    async with open_session(
        make_host, folder, {"web": http_entry(protected.url)}, connect_options()
    ) as session:
        assert (await session.call("web.secret")).text == "42"


async def test_logout_command_removes_the_login_and_says_so(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = make_host({}).settings
    settings.servers.user_file.write_text(
        json.dumps({"mcpServers": {"web": http_entry("https://web.example"), "local": {"command": "cat"}}})
    )
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(settings.data_dir))
    monkeypatch.setenv("HOLDFAST_SERVERS_USER_FILE", str(settings.servers.user_file))
    monkeypatch.chdir(folder)
    logins = settings.data_dir / LOGIN_FOLDER
    saved = SavedLogin(url="https://web.example/mcp", tokens={"access_token": "a", "token_type": "Bearer"})
    for url in ("https://web.example/mcp", "https://other.example/mcp"):
        write_login(login_file(logins, url), saved)

    first, second, local = [
        await asyncio.to_thread(CliRunner().invoke, logout, [name]) for name in ("web", "web", "local")
    ]

    assert first.stdout.startswith("Logged out of web: removed the saved login to https://web.example/mcp.\n")
    assert second.stdout == "There is no saved login to web.\n"
    assert "local program" in str(local.exception)
    assert [*logins.iterdir()] == [login_file(logins, "https://other.example/mcp")]


def test_first_login_creates_a_data_folder_that_only_its_owner_can_open(tmp_path: Path):
    file = login_file(tmp_path / "data" / LOGIN_FOLDER, "https://web.example/mcp")
    write_login(file, SavedLogin(url="https://web.example/mcp", tokens={}))

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file.parent.parent, file.parent, file)]
    assert modes == [0o700, 0o700, 0o600]


# Where a login is refreshed


@asynccontextmanager
async def expired_credentials(
    file: Path, tokens_at: str, seconds: float = 5.0
) -> AsyncIterator[OAuthCredentials]:
    """Credentials with an expired login, to be refreshed at the address `tokens_at`."""
    url = "http://127.0.0.1:9/mcp"
    saved = SavedLogin(
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
    write_login(file, saved)
    spec = ServerSpec(name="web", source=Source.USER, transport=Http(url=url))
    pool = Pool(AddressPolicy(public_only=False), ssl.create_default_context())
    yield OAuthCredentials(
        spec,
        LoginProvider(url, file, obtained=ObtainedSecrets()),
        lambda url: pool,
        connect_options(connect_seconds=seconds),
    )
    await pool.close()


async def test_redirect_within_the_authorization_server_is_followed(
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
        serve(Starlette(routes=routes)) as there,
        expired_credentials(tmp_path / "l", f"{there}/token") as login,
    ):
        shown = [await login.header() for _ in range(2)]

    assert shown == ["Bearer new"] * 2
    assert [(path, accept) for path, accept, _ in asked] == [
        ("/token", "application/json"),
        ("/token/", "application/json"),
    ]
    assert asked[0][2] == asked[1][2]


@pytest.mark.parametrize(
    ("answer", "why"),
    [(None, "no answer in time"), (b"", "closed the connection"), (b"SSH-2.0\r\n", "not HTTP")],
)
async def test_failing_authorization_server_is_named_in_the_error(
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
    async with server, expired_credentials(tmp_path / "l", there, 0.2) as login:
        failed = await asyncio.gather(login.header(), login.header(), return_exceptions=True)

    assert [isinstance(error, HoldfastError) and error.code.name for error in failed] == ["PEER_ERROR"] * 2
    assert [f"{there}, which handles logins to 'web', failed: " in str(error) for error in failed] == [
        True
    ] * 2
    assert [why in str(error) for error in failed] == [True] * 2


async def test_login_that_cannot_be_read_is_ignored(tmp_path: Path):
    async with expired_credentials(tmp_path / "l", "no address") as login:
        with pytest.raises(HoldfastError) as refused:
            await login.header()

    assert refused.value.code.name == "LOGIN_NEEDED"
