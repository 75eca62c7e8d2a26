"""Two editors on one live session: both see everything, either answers, and each can leave.

The editors are connected to one host, or to two hosts with one data folder. With two hosts, the second editor is attached through
the socket of the first host.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from holdfast.host.host import Host
from holdfast.model.event import Decision
from holdfast.wire.messages import PeerError
from tests.acp.zed import Zed, connected
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.promise("SES-01"),
    pytest.mark.parametrize("hosts", [1, 2], ids=["one host", "two hosts"]),
]

WRITE = '/call files.write {"path": "note", "text": "hi"}'


@asynccontextmanager
async def editors(make_host: HostFactory, hosts: int) -> AsyncIterator[tuple[Host, Zed, Zed]]:
    """Two editors; the host is that of the first."""
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(make_host({}, durable=hosts > 1)) for _ in range(hosts)]
        one = await stack.enter_async_context(connected(opened[0]))
        two = await stack.enter_async_context(connected(opened[-1]))
        yield opened[0], one, two


@asynccontextmanager
async def two_editors(
    make_host: HostFactory, folder: Path, hosts: int
) -> AsyncIterator[tuple[Host, str, Zed, Zed]]:
    """A session that one editor opened and another loaded."""
    async with editors(make_host, hosts) as (host, one, two):
        session = (await one.request("session/new", cwd=str(folder), mcpServers=[]))["sessionId"]
        await two.request("session/load", sessionId=session, cwd=str(folder), mcpServers=[])
        yield host, session, one, two


async def test_both_editors_see_everything_and_prompt_in_order(
    make_host: HostFactory, tmp_path: Path, hosts: int
):
    async with two_editors(make_host, tmp_path, hosts) as (_, session, one, two):
        reasons = await asyncio.gather(one.prompt(session, "/servers"), two.prompt(session, "/help"))
        await one.wait_until(lambda zed: len(zed.shown("agent_message_chunk")) == 2)
        one_shows, two_shows = one.shown("user_message_chunk"), two.shown("user_message_chunk")

        assert reasons == ["end_turn"] * 2
        assert (one_shows, two_shows) == (["/help"], ["/servers"])
        assert one.shown("agent_message_chunk") == two.shown("agent_message_chunk")


@pytest.mark.promise("SES-03")
async def test_a_question_is_answered_by_either_editor_and_withdrawn_from_the_other(
    make_host: HostFactory, tmp_path: Path, hosts: int
):
    async with two_editors(make_host, tmp_path, hosts) as (_, session, one, two):
        turn = asyncio.create_task(one.prompt(session, WRITE))
        await asyncio.gather(one.is_asked.wait(), two.is_asked.wait())
        two.answer.set_result(Decision.ALLOW_ONCE)
        reason = await turn
        await asyncio.wait_for(one.withdrawn.wait(), 10)

        assert (reason, one.statuses()) == ("end_turn", ["pending", "in_progress", "completed"])
        assert two.statuses() == one.statuses()


@pytest.mark.promise("SES-03")
async def test_an_editor_that_disconnects_while_asked_leaves_the_question_to_the_other(
    make_host: HostFactory, tmp_path: Path, hosts: int
):
    async with two_editors(make_host, tmp_path, hosts) as (_, session, one, two):
        turn = asyncio.create_task(two.prompt(session, WRITE))
        await asyncio.gather(one.is_asked.wait(), two.is_asked.wait())
        await one.peer.close()
        two.answer.set_result(Decision.ALLOW_ONCE)

        assert (await turn, two.statuses()[-1]) == ("end_turn", "completed")


@pytest.mark.promise("SES-03")
async def test_an_editor_that_loads_the_session_while_a_question_is_open_is_asked_too(
    make_host: HostFactory, tmp_path: Path, hosts: int
):
    async with editors(make_host, hosts) as (_, one, two):
        session = (await one.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        turn = asyncio.create_task(one.prompt(session, WRITE))
        await one.is_asked.wait()
        await two.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        await two.is_asked.wait()
        before = two.statuses()
        two.answer.set_result(Decision.ALLOW_ONCE)

        assert (await turn, before) == ("end_turn", ["pending"])


async def test_a_session_is_closed_when_the_last_editor_closes_it(
    make_host: HostFactory, tmp_path: Path, hosts: int
):
    async with two_editors(make_host, tmp_path, hosts) as (host, session, one, two):
        await one.request("session/close", sessionId=session)
        with pytest.raises(PeerError):
            await one.prompt(session, "/help")
        reason, live = await two.prompt(session, "/help"), host.find_live(session)
        await two.request("session/close", sessionId=session)
        async with asyncio.timeout(10):
            while host.find_live(session) is not None:  # the first host closes it when the second is gone
                await asyncio.sleep(0.01)

        assert (reason, live is not None) == ("end_turn", True)


async def test_deleting_a_session_closes_it_for_the_other_editor(
    make_host: HostFactory, tmp_path: Path, hosts: int
):
    async with two_editors(make_host, tmp_path, hosts) as (_, session, one, two):
        await one.request("session/delete", sessionId=session)
        with pytest.raises(PeerError) as refused:
            await two.prompt(session, "/help")
        again = await two.request("session/new", cwd=str(tmp_path), mcpServers=[])

        assert "There is no session" in str(refused.value)
        assert again["sessionId"] != session


async def test_both_editors_are_told_that_the_mode_changed(
    make_host: HostFactory, tmp_path: Path, hosts: int
):
    async with two_editors(make_host, tmp_path, hosts) as (_, session, one, two):
        await one.request("session/set_mode", sessionId=session, modeId="read-only")
        await two.prompt(session, "/help")
        kinds = [
            [
                update
                for update in zed.received
                if update["sessionUpdate"] in ("current_mode_update", "config_option_update")
            ]
            for zed in (one, two)
        ]

        assert kinds[0] == kinds[1]
        assert kinds[0][0]["currentModeId"] == "read-only"
        assert kinds[0][1]["configOptions"][0]["currentValue"] == "read-only"


async def test_the_same_connection_cannot_open_a_session_twice(
    make_host: HostFactory, tmp_path: Path, hosts: int
):
    async with two_editors(make_host, tmp_path, hosts) as (_, session, _, two):
        with pytest.raises(PeerError):
            await two.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
