"""Attack 57: a server's login metadata mixes two authorization servers, so that one gets the other's code."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from holdfast.connect.http import oauth
from holdfast.connect.http.login import log_in
from holdfast.connect.http.login_checks import check_encrypted
from holdfast.connect.http.url import parse_url
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Source
from tests.connect.web import ScriptedServer, serve

pytestmark = pytest.mark.anyio


@dataclass
class Site:
    """A server with a login: its address, what its metadata says, and the codes that it was sent."""

    url: str = ""
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    resource: dict[str, Any] = field(default_factory=dict[str, Any])
    sends_iss: bool = False
    redirects_tokens_to: str = ""
    codes: list[str] = field(default_factory=list[str])
    pages: int = 0
    token: str = ""

    async def answer(
        self, scripted: ScriptedServer, request: Request, message: dict[str, Any]
    ) -> Response | None:
        match request.url.path:
            case "/authorize":
                self.pages += 1
                back = {"code": "the-code", "state": request.query_params["state"]}
                issuer = {"iss": self.url} if self.sends_iss else {}
                return RedirectResponse(f"{request.query_params['redirect_uri']}?{urlencode(back | issuer)}")
            case "/token" if self.redirects_tokens_to:
                return RedirectResponse(self.redirects_tokens_to)
            case "/token":
                self.codes += parse_qs((await request.body()).decode())["code"]
                self.token = "token"
                return JSONResponse({"access_token": self.token, "token_type": "Bearer"})
            case "/register":
                return JSONResponse(
                    {"client_id": "c", "redirect_uris": message["redirect_uris"]}, status_code=201
                )
            case "/.well-known/oauth-protected-resource/mcp":
                return JSONResponse(
                    {"resource": f"{self.url}/mcp", "authorization_servers": [self.url], **self.resource}
                )
            case "/.well-known/oauth-authorization-server":
                own = {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "registration_endpoint": f"{self.url}/register",
                    "response_types_supported": ["code"],
                }
                return JSONResponse(own | self.metadata)
            case "/mcp" if self.token and request.headers.get("authorization") == f"Bearer {self.token}":
                return None
            case "/mcp":
                return Response(status_code=401)
            case _:
                return Response(status_code=404)


@asynccontextmanager
async def two_sites() -> AsyncIterator[tuple[Site, Site]]:
    """The attacker's server, and one of which the user has an account."""
    evil, honest = Site(), Site()

    def app(site: Site) -> ScriptedServer:
        class JsonOrForm(ScriptedServer):
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                if scope["type"] == "http" and scope["path"] == "/token":
                    request = Request(scope, receive)
                    response = await site.answer(self, request, {})
                    assert response is not None
                    await response(scope, receive, send)
                else:
                    await super().__call__(scope, receive, send)

        return JsonOrForm(site.answer)

    async with serve(app(evil)) as evil.url, serve(app(honest)) as honest.url:
        yield evil, honest


async def log_in_to(site: Site, folder: Path) -> str:
    """Log in with a browser that agrees to everything; return the error, or an empty text."""
    visits: list[asyncio.Task[None]] = []

    async def visit(url: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            await browser.get(url)

    spec = ServerSpec(name="web", source=Source.USER, transport=Http(url=f"{site.url}/mcp"))
    try:
        await log_in(
            spec,
            folder=folder,
            on_login_page=lambda url: visits.append(asyncio.create_task(visit(url))),
            seconds=10,
        )
    except HoldfastError as error:
        return error.message
    finally:
        if visits:
            await asyncio.wait(visits)
    return ""


def mix_up(kind: str, evil: Site, honest: Site) -> None:
    """Change the attacker's metadata so that the code of the honest server would go to the attacker."""
    match kind:
        case "login page of another":
            evil.metadata = {
                "authorization_endpoint": f"{honest.url}/authorize",
                "registration_endpoint": f"{honest.url}/register",
            }
        case "only the login page of another":
            evil.metadata = {"authorization_endpoint": f"{honest.url}/authorize"}
        case "login page that redirects":
            # The page is on the issuer's origin in the metadata of a second, colluding issuer.
            evil.resource = {"authorization_servers": [honest.url]}
            honest.metadata = {"token_endpoint": f"{evil.url}/token"}
        case _:
            raise AssertionError(kind)


KINDS = ["login page of another", "only the login page of another", "login page that redirects"]


@pytest.mark.parametrize("kind", KINDS)
async def test_code_is_not_sent_to_another_server_than_its_issuer(tmp_path: Path, kind: str):
    async with two_sites() as (evil, honest):
        mix_up(kind, evil, honest)
        error = await log_in_to(evil, tmp_path)

    assert (evil.codes, honest.codes, [*tmp_path.iterdir()]) == ([], [], [])
    assert evil.pages + honest.pages == 1
    assert "of another server" in error
    assert "put it into the Authorization header of the server's entry" in error


@pytest.mark.parametrize("kind", KINDS)
async def test_control_without_the_check_the_attacker_gets_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    monkeypatch.setattr(oauth, "check_code_origin", lambda result, metadata: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    async with two_sites() as (evil, honest):
        mix_up(kind, evil, honest)
        await log_in_to(evil, tmp_path)

    assert evil.codes == ["the-code"]


async def test_answer_that_names_its_issuer_is_believed_only_of_that_issuer(tmp_path: Path):
    async with two_sites() as (evil, honest):
        honest.sends_iss = True
        mix_up("login page of another", evil, honest)
        error = await log_in_to(evil, tmp_path)

    assert (evil.codes, "iss mismatch" in error) == ([], True)


async def test_issuer_with_a_token_address_elsewhere_is_accepted_if_its_answer_names_it(tmp_path: Path):
    async with two_sites() as (web, elsewhere):
        web.sends_iss = True
        web.metadata = {"token_endpoint": f"{elsewhere.url}/token"}
        web.token = "token"
        error = await log_in_to(web, tmp_path)

    assert (error, web.codes, elsewhere.codes) == ("", [], ["the-code"])


async def test_login_at_one_server_succeeds_without_the_name_of_the_issuer(tmp_path: Path):
    async with two_sites() as (web, _):
        error = await log_in_to(web, tmp_path)

    assert (error, web.codes) == ("", ["the-code"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("metadata of another issuer", "issuer mismatch"),
        ("resource of another server", "does not match"),
    ],
)
async def test_metadata_about_another_server_is_refused_before_the_login(
    tmp_path: Path, change: str, why: str
):
    async with two_sites() as (evil, honest):
        if change == "metadata of another issuer":
            evil.metadata = {"issuer": honest.url}
        else:
            evil.resource = {"resource": f"{honest.url}/mcp"}
        error = await log_in_to(evil, tmp_path)

    assert (why in error, evil.pages + honest.pages, evil.codes) == (True, 0, [])


async def test_redirect_of_the_token_address_to_another_server_is_not_followed(tmp_path: Path):
    async with two_sites() as (web, evil):
        web.redirects_tokens_to = f"{evil.url}/token"
        error = await log_in_to(web, tmp_path)

    assert (evil.codes, "failed" in error) == ([], True)


@pytest.mark.promise("RES-18")
async def test_login_page_that_is_not_encrypted_is_not_shown(tmp_path: Path):
    async with two_sites() as (evil, _):
        evil.metadata = {"authorization_endpoint": "http://login.example.com/authorize"}
        error = await log_in_to(evil, tmp_path)

    assert ("not encrypted" in error, evil.pages, evil.codes) == (True, 0, [])


@pytest.mark.parametrize("url", ["http://example.com/token", "http://127.0.0.1:1/token"])
def test_login_of_an_encrypted_server_is_not_sent_unencrypted(url: str):
    with pytest.raises(HoldfastError, match="not encrypted"):
        check_encrypted(parse_url(url), parse_url("https://example.com/mcp"))


def test_server_that_the_user_reaches_without_encryption_may_log_in_without_it():
    check_encrypted(parse_url("http://nas.example/token"), parse_url("http://nas.example/mcp"))
