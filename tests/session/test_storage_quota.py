"""One session cannot fill the disk: it stores at most `sessions.max_megabytes`."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.agent.agent import Command, TurnContext
from holdfast.agent.slash_commands import SlashCommandAgent
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.event import Outcome, SessionClosed, StopReason, ToolEnded
from holdfast.model.json import JsonObject
from holdfast.session.session import Session
from holdfast.session.storage_quota import MEGABYTE
from tests.connect.conftest import HostFactory, make_host
from tests.store.sessions import raises_code

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-12")]

PIECE = "x" * 50_000
PIECES = 40
LIST: JsonObject = {"path": "."}


class EndlessTalker:
    commands: tuple[Command, ...] = ()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        result = await turn.call("files.list", LIST)
        assert result.ok
        for _ in range(PIECES):
            await turn.reply(PIECE)
        return StopReason.END_TURN


async def talk(host: Host, session: Session) -> tuple[str, int]:
    """Let the agent of the session talk. Returns why the turn failed, and how much the session has stored."""
    session.agent = EndlessTalker()
    result = await session.prompt("talk")
    session_id = session.context.session_id
    return result.code, await host.store.read(lambda tx: tx.stored_bytes(session_id))


@pytest.mark.parametrize("durable", [True, False])
async def test_full_session_takes_no_prompts_and_calls_and_others_go_on(
    make_host: HostFactory, tmp_path: Path, durable: bool
):
    async with make_host({}, durable=durable, HOLDFAST_SESSIONS_MAX_MEGABYTES="1") as host:
        async with host.session(cwd=tmp_path) as full, host.session(cwd=tmp_path) as other:
            session_id = full.context.session_id
            code, stored = await talk(host, full)
            assert (code, MEGABYTE <= stored < PIECES * len(PIECE)) == ("SESSION_FULL", True)
            with raises_code(codes.SESSION_FULL):
                await full.prompt("/help")
            with raises_code(codes.SESSION_FULL):
                await full.call("files.list", LIST)
            other.agent = SlashCommandAgent()
            assert ((await other.prompt("/help")).code, (await other.call("files.list", LIST)).ok) == (
                "",
                True,
            )
        async with await host.reopen(session_id) as again:
            with raises_code(codes.SESSION_FULL):
                await again.prompt("/help")
        events = [stored.event async for stored in host.store.events(session_id)]

    assert isinstance(events[-1], SessionClosed)
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == [Outcome.COMPLETED]


async def test_without_a_limit_the_session_stores_everything(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host({}, HOLDFAST_SESSIONS_MAX_MEGABYTES="0") as host,
        host.session(cwd=tmp_path) as session,
    ):
        code, stored = await talk(host, session)

    assert (code, stored > PIECES * len(PIECE)) == ("", True)
