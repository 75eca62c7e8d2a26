"""Attack 34: a list whose every page names a next one."""

from pathlib import Path

import pytest

from holdfast.connect.terms import Terms
from holdfast.model.errors import HoldfastError
from tests.connect.conftest import HostFactory, counter, hostile, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@pytest.mark.promise("LNK-13")
@pytest.mark.promise("LNK-09")
async def test_the_server_is_refused_and_the_session_opens_with_the_rest(
    make_host: HostFactory, tmp_path: Path
):
    servers = {"good": counter(), "x": hostile("lists without end")}
    async with make_host(servers) as host, host.session(cwd=tmp_path) as session:
        assert [(refusal.server, refusal.reason) for refusal in session.refusals] == [
            ("x", "The server lists its tools without end: 2000 of them and 4194304 bytes are the most.")
        ]
        assert (await session.call("good.count")).text == "1"


@pytest.mark.promise("LNK-09")
async def test_one_that_is_slow_about_it_is_refused_when_its_time_is_over(
    make_host: HostFactory, tmp_path: Path
):
    terms = Terms(list_seconds=0.3, end_seconds=0.2)
    async with (
        make_host({"x": hostile("lists slowly")}, terms=terms) as host,
        host.session(cwd=tmp_path) as session,
    ):
        assert [(refusal.server, refusal.reason) for refusal in session.refusals] == [
            ("x", "'x' did not list its tools within 0.3 s.")
        ]


async def test_resources_and_prompts_end_as_well(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter("--endless")}) as host, host.session(cwd=tmp_path) as session:
        for what in (session.resources, session.prompts):
            with pytest.raises(HoldfastError, match="without end"):
                await what("c")


async def test_control_who_follows_every_cursor_never_comes_to_an_end(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter("--endless")}) as host, host.session(cwd=tmp_path) as session:
        _, connection = await host.links.connected(session.scope, session.server("c"))
        cursor = ""
        for _ in range(2000):
            page = await connection.request("resources/list", {"cursor": cursor} if cursor else {})
            assert b"nextCursor" in bytes(page)
            cursor = "again"
