"""Client sessions: whose they are, how they are named in each era, and what ends them."""

import asyncio
import os
from typing import Any

import aiohttp
import pytest

from holdfast.wire.http.limits import HttpLimits
from tests.connect.processes import is_alive, wait_until
from tests.gateway.conftest import RawClient, Serve, counter_entry

pytestmark = pytest.mark.anyio
CROSSINGS = int(os.environ.get("HOLDFAST_CROSSINGS", "8"))


async def pid_of(client: RawClient) -> int:
    async with client.post("tools/call", {"name": "whoami", "arguments": {}}) as response:
        return (await response.json())["result"]["structuredContent"]["pid"]


@pytest.mark.promise("GW-01", "GW-02")
async def test_each_handshake_client_has_its_own_server_until_it_ends_its_session(
    serve: Serve, http: aiohttp.ClientSession
):
    async with serve({"counter": counter_entry()}) as gateway:
        first, second = RawClient(http, gateway.url), RawClient(http, gateway.url)
        await first.initialize()
        await second.initialize()

        counts = [await first.call("count"), await first.call("count"), await second.call("count")]
        pid = await pid_of(first)
        ended = await first.delete()
        await wait_until(lambda: not is_alive(pid))

        assert counts == [(200, "1"), (200, "2"), (200, "1")]
        assert (ended, (await first.call("count"))[0]) == (204, 404)
        assert await second.call("count") == (200, "2")


@pytest.mark.promise("GW-02")
async def test_the_session_id_of_another_credential_looks_like_one_that_does_not_exist(
    serve: Serve, http: aiohttp.ClientSession
):
    async with serve({"counter": counter_entry()}) as gateway:
        owner, thief = RawClient(http, gateway.url, "owner"), RawClient(http, gateway.url, "thief")
        await owner.initialize()

        thief.headers["mcp-session-id"] = owner.headers["mcp-session-id"]
        stolen = (*await thief.call("count"), await thief.delete())
        thief.headers["mcp-session-id"] = "0" * 32
        unknown = (*await thief.call("count"), await thief.delete())

        assert stolen == unknown
        assert stolen[0] == stolen[2] == 404
        assert await owner.call("count") == (200, "1")  # the control: its owner uses it


@pytest.mark.promise("GW-02")
async def test_an_idle_session_and_a_revoked_one_end_with_their_servers(
    serve: Serve, http: aiohttp.ClientSession
):
    limits = HttpLimits(idle_seconds=0.3)
    async with serve({"counter": counter_entry()}, http_limits=limits) as gateway:
        idle, revoked = RawClient(http, gateway.url, "idle"), RawClient(http, gateway.url, "gone")
        await revoked.initialize()
        revoked_pid = await pid_of(revoked)
        await gateway.app.close_credential("gone")
        await idle.initialize()
        idle_pid = await pid_of(idle)

        await wait_until(lambda: not is_alive(revoked_pid))
        await wait_until(lambda: not is_alive(idle_pid))
        await wait_until(lambda: len(gateway.ends) == 2)

        assert gateway.ends == ["the credential was revoked", "idle"]
        assert [(await idle.call("count"))[0], (await revoked.call("count"))[0]] == [404, 404]


@pytest.mark.promise("GW-02")
async def test_a_session_without_a_request_after_initialize_ends_before_an_idle_one(
    serve: Serve, http: aiohttp.ClientSession
):
    limits = HttpLimits(idle_seconds=3600, unused_seconds=0.3)
    async with serve({}, http_limits=limits) as gateway:
        used, unused = RawClient(http, gateway.url), RawClient(http, gateway.url)
        await used.initialize()
        while (await used.call("none"))[0] == 404:  # on a busy machine, its session may have ended already
            await used.initialize()
        await unused.initialize()
        ended = unused.headers["mcp-session-id"]
        await wait_until(lambda: all(served.session.key != ended for served in gateway.app.sessions))

        assert ((await unused.call("none"))[0], (await used.call("none"))[0]) == (404, 200)


@pytest.mark.promise("GW-03")
async def test_a_modern_session_is_that_of_the_credential_or_of_its_handle(
    serve: Serve, http: aiohttp.ClientSession
):
    async with serve({"counter": counter_entry()}) as gateway:
        own, other = RawClient(http, gateway.url, "one"), RawClient(http, gateway.url, "two")
        handle = gateway.app.issue_handle(
            (await _opened(own, gateway.app)).credential  # the credential of its default session
        )
        by_handle = RawClient(http, gateway.at(handle), "one")
        foreign = RawClient(http, gateway.at(handle), "two")
        unknown = RawClient(http, gateway.at("nobody-has-this"), "two")

        by_header = RawClient(http, gateway.at(handle), "one")
        by_header.headers["holdfast-session"] = gateway.app.issue_handle(
            gateway.app.open_sessions()[0].credential
        )
        counts = [
            await client.call_modern("count") for client in (own, own, other, by_handle, own, by_header)
        ]
        # `_meta` never selects a session.
        named = await other.call_modern("count", **{"dev.holdfast/session": {"session_id": handle}})

        assert counts == [(200, "1"), (200, "2"), (200, "1"), (200, "1"), (200, "3"), (200, "1")]
        assert named == (200, "2")
        assert await foreign.call_modern("count") == await unknown.call_modern("count")
        assert (await foreign.call_modern("count"))[0] == 404


async def test_a_handshake_client_that_sends_a_handle_can_follow_the_advice(
    serve: Serve, http: aiohttp.ClientSession
):
    async with serve({"counter": counter_entry()}) as gateway:
        client = RawClient(http, gateway.url, "one")
        handle = gateway.app.issue_handle((await _opened(client, gateway.app)).credential)
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }

        async with client.post("initialize", params, **{"holdfast-session": handle}) as refused:
            message = (await refused.json())["error"]["message"]
        advised = await client.initialize()

        assert message.endswith("Use the path /mcp, without the header Holdfast-Session.")
        assert (refused.status, advised) == (400, 200)


@pytest.mark.promise("GW-02")
async def test_a_session_that_an_operator_closed_is_gone_for_its_handshake_client_and_new_for_a_modern_one(
    serve: Serve, http: aiohttp.ClientSession
):
    async with serve({"counter": counter_entry()}) as gateway:
        old, modern = RawClient(http, gateway.url, "one"), RawClient(http, gateway.url, "two")
        await old.initialize()
        counts = [await old.call("count"), await modern.call_modern("count")]
        for line in gateway.app.open_sessions():
            session = gateway.host.find_live(line.session_id)
            assert session is not None
            await session.close("an operator closed it")

        assert counts == [(200, "1"), (200, "1")]
        assert (await old.call("count"))[0] == 404
        assert await modern.call_modern("count") == (200, "1")


async def _opened(client: RawClient, app: Any) -> Any:
    async with client.post_modern("tools/list", {}) as response:
        assert response.status == 200
    return app.open_sessions()[0]


@pytest.mark.promise("GW-01")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_no_call_reaches_the_session_of_another_client(
    era: str, serve: Serve, http: aiohttp.ClientSession
):
    async def use(number: int) -> list[str]:
        client = RawClient(http, gateway.url, f"client-{number}")
        if era == "handshake":
            await client.initialize()
        call = client.call if era == "handshake" else client.call_modern
        return [(await call("count"))[1] for _ in range(CROSSINGS)]

    limits = HttpLimits(sessions_per_caller=CROSSINGS)
    async with serve({"counter": counter_entry()}, http_limits=limits) as gateway:
        counted = await asyncio.gather(*map(use, range(CROSSINGS)))

    assert counted == [[str(count + 1) for count in range(CROSSINGS)]] * CROSSINGS
