"""Requests to one remote server: redirects, cookies and private addresses."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.connect.http.endpoint import Endpoint
from holdfast.connect.http.pools import Pool
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Source
from tests.connect.web import connect_options, serve

pytestmark = pytest.mark.anyio


class Web:
    """Answers a POST to /mcp, redirects a GET of /mcp to a page, and records the requests."""

    def __init__(self, *cookies: str) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self._cookies = cookies
        self.app = Starlette(
            routes=[
                Route(path, self._answer, methods=["GET", "POST"])
                for path in ("/mcp", "/old", "/older", "/page")
            ]
        )

    async def _answer(self, request: Request) -> Response:
        cookies = ", ".join(value for name, value in request.headers.items() if name == "cookie")
        self.requests.append((request.method, request.url.path, cookies))
        further = {"/old": "/mcp", "/older": "/old"}.get(request.url.path)
        if request.method == "GET" and request.url.path == "/mcp":
            return RedirectResponse("/page", 302)
        response = RedirectResponse(further, 307) if further else PlainTextResponse("here")
        for cookie in self._cookies:
            response.headers.append("set-cookie", cookie)
        return response


@asynccontextmanager
async def open_endpoint(web: Web, path: str = "/mcp", **headers: str) -> AsyncIterator[Endpoint]:
    async with serve(web.app) as url:
        pool = Pool(AddressPolicy(public_only=False), ssl.create_default_context())
        spec = ServerSpec(name="web", source=Source.USER, transport=Http(url=f"{url}{path}", headers=headers))
        yield Endpoint(
            pool,
            spec=spec,
            options=connect_options(),
            sign=lambda context, body: "",
            mask=lambda link, value: None,
        )
        await pool.close()


async def read_answer(endpoint: Endpoint, method: str, **more: Any) -> str:
    async with endpoint.request(method, headers={}, **more) as response:
        return (await response.read(100)).decode()


async def test_redirect_of_a_get_does_not_change_where_messages_go():
    web = Web()
    async with open_endpoint(web) as endpoint:
        answers = [await read_answer(endpoint, "GET"), await read_answer(endpoint, "POST", body=b"{}")]

    assert answers == ["here", "here"]
    assert [asked[:2] for asked in web.requests] == [("GET", "/mcp"), ("GET", "/page"), ("POST", "/mcp")]


async def test_redirect_of_a_post_is_remembered_for_the_next_message():
    web = Web()
    async with open_endpoint(web, "/older") as endpoint:
        answers = [await read_answer(endpoint, "POST", body=b"{}") for _ in range(2)]

    assert answers == ["here", "here"]
    assert [path for _, path, _ in web.requests] == ["/older", "/old", "/mcp", "/mcp"]


@pytest.mark.parametrize(
    ("configured", "sent"),
    [({}, ["", "a=1; b=2"]), ({"Cookie": "mine=1"}, ["mine=1", "mine=1"])],
    ids=["set by the server", "configured"],
)
async def test_cookies_are_kept_unless_one_is_configured(configured: dict[str, str], sent: list[str]):
    web = Web("a=1; Max-Age=--5", "b=2; Expires=never")
    async with open_endpoint(web, **configured) as endpoint:
        for _ in range(2):
            await read_answer(endpoint, "POST", body=b"{}")

    assert [cookies for _, _, cookies in web.requests] == sent


@pytest.mark.parametrize(
    ("named", "host", "allowed"),
    [
        ("::1", "::1", True),
        ("[::1]", "::1", True),
        ("[::1]:8080", "::1", True),
        ("[::1]:8081", "::1", False),
        ("::1:8080", "::1", False),  # read as one IPv6 address, not as host and port
        ("There:8080", "there", True),
        ("there:8081", "there", False),
    ],
)
def test_private_address_is_allowed_if_the_settings_name_it(named: str, host: str, allowed: bool):
    policy = AddressPolicy(public_only=True, reachable=[named])

    try:
        found = policy.select(host, 8080, ["::1"])
    except HoldfastError:
        found = []
    assert found == (["::1"] if allowed else [])
