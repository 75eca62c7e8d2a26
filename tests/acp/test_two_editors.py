"""Two editors on one live session of a host: both see everything, either answers, and each can leave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.acp.messages import InitializeParams
from holdfast.acp.methods import SessionMethods
from holdfast.acp.serve import SessionDefaults
from holdfast.host.host import Host
from holdfast.model.event import Decision
from holdfast.wire.frame import Notification, PeerError, Request
from holdfast.wire.incoming import ACP_CANCEL
from holdfast.wire.memory import connect_memory
from holdfast.wire.peer import Peer
from tests.connect.conftest import HostFactory, counter_entry, make_host

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-01")]

COUNT = "/call c.count"


class Zed:
    """An editor that is connected to a host in this process."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.is_asked = asyncio.Event()
        self.answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.withdrawn = asyncio.Event()
        self.peer = Peer(
            on_request=self._answer, on_notification=self._on_notification, cancel_method=ACP_CANCEL
        )

    async def request(self, method: str, **params: Any) -> Any:
        return msgspec.json.decode(await self.peer.request(method, params))

    async def prompt(self, session: str, text: str) -> str:
        params: Any = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        return (await self.request("session/prompt", **params))["stopReason"]

    def shown(self, kind: str) -> list[str]:
        """The texts of the messages of this kind, one for each message."""
        texts: dict[str, str] = {}
        for update in self.received:
            if update["sessionUpdate"] == kind:
                texts[update["messageId"]] = texts.get(update["messageId"], "") + update["content"]["text"]
        return [*texts.values()]

    def statuses(self) -> list[str]:
        return [update["status"] for update in self.received if "toolCallId" in update]

    async def _answer(self, request: Request) -> Any:
        self.is_asked.set()
        try:
            decision = await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.withdrawn.set()
            raise
        return {"outcome": {"outcome": "selected", "optionId": decision}}

    def _on_notification(self, notification: Notification) -> None:
        self.received.append(msgspec.json.decode(notification.params)["update"])


@asynccontextmanager
async def connected(host: Host) -> AsyncIterator[Zed]:
    """An editor with a connection of its own."""
    async with AsyncExitStack() as stack:
        zed, client = Zed(), InitializeParams(protocol_version=1)

        async def handle(request: Request) -> Any:
            return await methods.handle(request, client)

        ours = Peer(on_request=handle, cancel_method=ACP_CANCEL)
        methods = SessionMethods(host, SessionDefaults(), ours)
        await stack.enter_async_context(connect_memory(ours, zed.peer))
        yield zed
        await methods.stop()
        await methods.leave_all()


@asynccontextmanager
async def two_editors(make_host: HostFactory, folder: Path) -> AsyncIterator[tuple[Host, str, Zed, Zed]]:
    """A session that one editor opened and another loaded."""
    async with make_host({"c": counter_entry()}) as host, connected(host) as one, connected(host) as two:
        opened = await one.request("session/new", cwd=str(folder), mcpServers=[])
        session = opened["sessionId"]
        await two.request("session/load", sessionId=session, cwd=str(folder), mcpServers=[])
        yield host, session, one, two


async def test_both_editors_see_everything_and_prompt_in_order(make_host: HostFactory, tmp_path: Path):
    async with two_editors(make_host, tmp_path) as (_, session, one, two):
        reasons = await asyncio.gather(one.prompt(session, "/servers"), two.prompt(session, "/help"))
        one_shows, two_shows = one.shown("user_message_chunk"), two.shown("user_message_chunk")

        assert reasons == ["end_turn"] * 2
        assert (one_shows, two_shows) == (["/help"], ["/servers"])
        assert one.shown("agent_message_chunk") == two.shown("agent_message_chunk")


@pytest.mark.promise("SES-03")
async def test_a_question_is_answered_by_either_editor_and_withdrawn_from_the_other(
    make_host: HostFactory, tmp_path: Path
):
    async with two_editors(make_host, tmp_path) as (_, session, one, two):
        turn = asyncio.create_task(one.prompt(session, COUNT))
        await asyncio.gather(one.is_asked.wait(), two.is_asked.wait())
        two.answer.set_result(Decision.ALLOW_ONCE)
        reason = await turn
        await asyncio.wait_for(one.withdrawn.wait(), 10)

        assert (reason, one.statuses()) == ("end_turn", ["pending", "in_progress", "completed"])
        assert two.statuses() == one.statuses()


@pytest.mark.promise("SES-03")
async def test_an_editor_that_disconnects_while_asked_leaves_the_question_to_the_other(
    make_host: HostFactory, tmp_path: Path
):
    async with two_editors(make_host, tmp_path) as (_, session, one, two):
        turn = asyncio.create_task(two.prompt(session, COUNT))
        await asyncio.gather(one.is_asked.wait(), two.is_asked.wait())
        await one.peer.close()
        two.answer.set_result(Decision.ALLOW_ONCE)

        assert (await turn, two.statuses()[-1]) == ("end_turn", "completed")


@pytest.mark.promise("SES-03")
async def test_an_editor_that_loads_the_session_while_a_question_is_open_is_asked_too(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry()}) as host, connected(host) as one, connected(host) as two:
        session = (await one.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        turn = asyncio.create_task(one.prompt(session, COUNT))
        await one.is_asked.wait()
        await two.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        await two.is_asked.wait()
        before = two.statuses()
        two.answer.set_result(Decision.ALLOW_ONCE)

        assert (await turn, before) == ("end_turn", ["pending"])


async def test_a_session_is_closed_when_the_last_editor_closes_it(make_host: HostFactory, tmp_path: Path):
    async with two_editors(make_host, tmp_path) as (host, session, one, two):
        await one.request("session/close", sessionId=session)
        with pytest.raises(PeerError):
            await one.prompt(session, "/help")
        reason, live = await two.prompt(session, "/help"), host.find_live(session)
        await two.request("session/close", sessionId=session)

        assert (reason, live is not None, host.find_live(session)) == ("end_turn", True, None)


async def test_deleting_a_session_closes_it_for_the_other_editor(make_host: HostFactory, tmp_path: Path):
    async with two_editors(make_host, tmp_path) as (_, session, one, two):
        await one.request("session/delete", sessionId=session)
        with pytest.raises(PeerError) as refused:
            await two.prompt(session, "/help")
        again = await two.request("session/new", cwd=str(tmp_path), mcpServers=[])

        assert "There is no session" in str(refused.value)
        assert again["sessionId"] != session


async def test_both_editors_are_told_that_the_mode_changed(make_host: HostFactory, tmp_path: Path):
    async with two_editors(make_host, tmp_path) as (_, session, one, two):
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


async def test_the_same_connection_cannot_open_a_session_twice(make_host: HostFactory, tmp_path: Path):
    async with two_editors(make_host, tmp_path) as (_, session, _, two):
        with pytest.raises(PeerError):
            await two.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
