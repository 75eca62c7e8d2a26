"""Attack 57: a client whose token may only read logs in to a server, with an account of its own, for all sessions."""

from typing import Any

import mcp_types
import pytest
from mcp import Client

from holdfast.gateway.logins import Logins
from holdfast.model.permission import Mode
from tests.connect.http.test_login import Browser, ProtectedServer, protected
from tests.connect.web import http_entry
from tests.gateway.conftest import Serve, make_host, serve
from tests.gateway.test_bridging import text_of

__all__ = ["make_host", "protected", "serve"]

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-04")]


async def status_after_a_login(serve: Serve, protected: ProtectedServer) -> str:
    async def show_page(context: Any, params: Any) -> mcp_types.ElicitResult:
        Browser().open(params.url)
        return mcp_types.ElicitResult(action="accept")

    async with (
        serve({"web": http_entry(protected.url)}, mode=Mode.READ_ONLY) as gateway,
        Client(gateway.url, elicitation_callback=show_page) as session,
    ):
        return text_of(await session.call_tool("holdfast__status", {}))


async def test_a_client_that_may_only_read_is_not_asked_to_log_in(serve: Serve, protected: ProtectedServer):
    status = await status_after_a_login(serve, protected)

    assert "Server web: available." not in status
    assert "holdfast servers login web" in status


async def test_control_if_every_client_is_asked_its_login_is_used(
    serve: Serve, protected: ProtectedServer, monkeypatch: pytest.MonkeyPatch
):
    def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(Logins, "can_ask", always)

    assert "Server web: available." in await status_after_a_login(serve, protected)
