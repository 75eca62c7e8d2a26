"""How requests get to a remote server's address: where they go, what goes along, what is left behind."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast.connect.egress import guarded, look_up
from holdfast.connect.endpoint import Endpoint
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Source
from holdfast.wire.http.client import Find, Pool
from tests.connect.web import serving, terms

pytestmark = pytest.mark.anyio


class Web:
    """Answers at /mcp and shows people a page; keeps what it was sent."""

    def __init__(self, *cookies: str) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self._cookies = cookies
        self.app = Starlette(
            routes=[
                Route(path, self._answer, methods=["GET", "POST"])
                for path in ("/mcp", "/old", "/older", "/page")
            ]
        )

    async def _answer(self, request: Request) -> Response:
        cookies = ", ".join(value for name, value in request.headers.items() if name == "cookie")
        self.asked.append((request.method, request.url.path, cookies))
        further = {"/old": "/mcp", "/older": "/old"}.get(request.url.path)
        if request.method == "GET" and request.url.path == "/mcp":
            return RedirectResponse("/page", 302)
        response = RedirectResponse(further, 307) if further else PlainTextResponse("here")
        for cookie in self._cookies:
            response.headers.append("set-cookie", cookie)
        return response


@asynccontextmanager
async def endpoint_of(web: Web, path: str = "/mcp", **headers: str) -> AsyncIterator[Endpoint]:
    async with serving(web.app) as url:
        pool = Pool(look_up, ssl.create_default_context())
        spec = ServerSpec(name="web", source=Source.USER, transport=Http(url=f"{url}{path}", headers=headers))
        yield Endpoint(pool, spec=spec, terms=terms(), context=lambda: None, sign=lambda context, body: "")
        await pool.close()


async def said(endpoint: Endpoint, method: str, **more: Any) -> str:
    async with endpoint.ask(method, headers={}, **more) as reply:
        return (await reply.read(100)).decode()


async def test_a_page_for_people_is_not_where_messages_go_from_then_on():
    web = Web()
    async with endpoint_of(web) as endpoint:
        answers = [await said(endpoint, "GET"), await said(endpoint, "POST", body=b"{}")]

    assert answers == ["here", "here"]
    assert [asked[:2] for asked in web.asked] == [("GET", "/mcp"), ("GET", "/page"), ("POST", "/mcp")]


async def test_where_messages_are_redirected_the_next_one_goes_at_once():
    web = Web()
    async with endpoint_of(web, "/older") as endpoint:
        answers = [await said(endpoint, "POST", body=b"{}") for _ in range(2)]

    assert answers == ["here", "here"]
    assert [path for _, path, _ in web.asked] == ["/older", "/old", "/mcp", "/mcp"]


@pytest.mark.parametrize(
    ("configured", "sent"),
    [({}, ["", "a=1; b=2"]), ({"Cookie": "mine=1"}, ["mine=1", "mine=1"])],
    ids=["learned", "configured"],
)
async def test_a_cookie_that_is_configured_stands_alone_and_others_are_learned(
    configured: dict[str, str], sent: list[str]
):
    web = Web("a=1; Max-Age=--5", "b=2; Expires=never")
    async with endpoint_of(web, **configured) as endpoint:
        for _ in range(2):
            await said(endpoint, "POST", body=b"{}")

    assert [cookies for _, _, cookies in web.asked] == sent


def at(address: str) -> Find:
    async def find(host: str, port: int) -> list[str]:
        return [address]

    return find


@pytest.mark.parametrize(
    ("named", "host", "allowed"),
    [
        ("::1", "::1", True),
        ("[::1]", "::1", True),
        ("[::1]:8080", "::1", True),
        ("[::1]:8081", "::1", False),
        ("::1:8080", "::1", False),  # which is another address
        ("There:8080", "there", True),
        ("there:8081", "there", False),
    ],
)
async def test_an_inside_address_is_reached_if_the_settings_name_it(named: str, host: str, allowed: bool):
    find = guarded([named], find=at("::1"))

    try:
        found = await find(host, 8080)
    except HoldfastError:
        found = []
    assert found == (["::1"] if allowed else [])
