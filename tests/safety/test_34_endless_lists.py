"""Attack 34: a paginated list without a last page."""

from pathlib import Path

import pytest

from holdfast.connect.connection import ConnectOptions
from holdfast.model.errors import HoldfastError
from tests.connect.conftest import HostFactory, counter_entry, hostile_entry, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@pytest.mark.promise("LNK-13")
@pytest.mark.promise("LNK-09")
async def test_server_is_refused_and_the_session_opens_with_the_others(
    make_host: HostFactory, tmp_path: Path
):
    servers = {"good": counter_entry(), "x": hostile_entry("an endless list")}
    async with make_host(servers) as host, host.session(cwd=tmp_path) as session:
        assert [(refusal.server, refusal.reason) for refusal in session.refusals] == [
            ("x", "The server sent a tool list that has more than 2000 tools.")
        ]
        assert (await session.call("good.count")).text == "1"


@pytest.mark.promise("LNK-09")
async def test_server_that_lists_slowly_is_refused_after_the_timeout(make_host: HostFactory, tmp_path: Path):
    options = ConnectOptions(list_seconds=0.3, end_seconds=0.2)
    async with (
        make_host({"x": hostile_entry("a slow list")}, options=options) as host,
        host.session(cwd=tmp_path) as session,
    ):
        assert [(refusal.server, refusal.reason) for refusal in session.refusals] == [
            ("x", "'x' did not list its tools within 0.3 s.")
        ]


async def test_resources_and_prompts_are_limited_as_well(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry("--endless")}) as host, host.session(cwd=tmp_path) as session:
        for what in (session.list_resources, session.list_prompts):
            with pytest.raises(HoldfastError, match="more than 1000 pages"):
                await what("c")


async def test_control_following_every_cursor_never_ends(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry("--endless")}) as host, host.session(cwd=tmp_path) as session:
        _, connection = await host.links.connect(session.scope, session.server("c"))
        cursor = ""
        for _ in range(2000):
            page = await connection.request("resources/list", {"cursor": cursor} if cursor else {})
            assert b"nextCursor" in bytes(page)
            cursor = "again"
