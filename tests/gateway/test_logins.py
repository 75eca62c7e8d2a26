"""A remote server that needs a login: the client's user is shown the login page, if the client can show it."""

from typing import Any

import mcp_types
import pytest
from mcp import Client

from tests.connect.http.test_login import Browser, ProtectedServer, protected
from tests.connect.web import http_entry
from tests.gateway.conftest import Serve
from tests.gateway.test_bridging import ERAS, text_of

__all__ = ["protected"]

pytestmark = pytest.mark.anyio


@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("era", [*ERAS])
async def test_a_client_that_shows_pages_lets_its_user_log_in(
    era: str, serve: Serve, protected: ProtectedServer
):
    browser, asked = Browser(), list[str]()

    async def show_page(context: Any, params: Any) -> mcp_types.ElicitResult:
        asked.append(params.message)
        browser.open(params.url)
        return mcp_types.ElicitResult(action="accept")

    async with (
        serve({"web": http_entry(protected.url)}) as gateway,
        Client(gateway.url, mode=ERAS[era], elicitation_callback=show_page) as session,
    ):
        before = [tool.name for tool in (await session.list_tools()).tools]
        status = text_of(await session.call_tool("holdfast__status", {}))
        called = text_of(await session.call_tool("secret", {}))
        # The server now refuses the token and its renewal, so the next call asks again.
        protected.authority.access_tokens.clear()
        protected.authority.refresh_tokens.clear()
        called_again = text_of(await session.call_tool("secret", {}))

    assert before == ["holdfast__status"]
    assert "Server web: available." in status
    assert (called, called_again) == ("42", "42")
    assert [message.split(".")[0] for message in asked] == [
        "Holdfast: the server 'web' asks you to log in"
    ] * 2


@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("era", [*ERAS])
async def test_a_client_that_shows_no_pages_gets_the_command_to_log_in(
    era: str, serve: Serve, protected: ProtectedServer
):
    async with (
        serve({"web": http_entry(protected.url)}) as gateway,
        Client(gateway.url, mode=ERAS[era]) as session,
    ):
        status = text_of(await session.call_tool("holdfast__status", {}))

    assert "Server web: not offered (connect)." in status
    assert "requires a login. Run: holdfast servers login web" in status
