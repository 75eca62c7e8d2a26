"""Attack 45: an agent streams a secret in pieces, over messages and thoughts, or a tool spreads it over content blocks."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from holdfast.agent.agent import Command, TurnContext
from holdfast.masking import MASKED
from holdfast.masking.events import mask_event
from holdfast.masking.mask import Mask
from holdfast.masking.stream_mask import StreamMask
from holdfast.model.event import Outcome, Replied, StopReason, Thought, ToolEnded
from holdfast.model.json import JsonObject
from tests.connect.conftest import HostFactory, make_host
from tests.session.support import Watcher, text_prompt

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

SECRET = 'canary-4f9a2c81-"x"-7d1e'
PIECES = [SECRET[at : at + 4] for at in range(0, len(SECRET), 4)]

Script = Callable[[TurnContext], Awaitable[None]]


class ScriptedAgent:
    """An agent that runs a script in each turn."""

    commands: tuple[Command, ...] = ()

    def __init__(self, script: Script) -> None:
        self._script = script

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        await self._script(turn)
        return StopReason.END_TURN


async def reply(turn: TurnContext) -> None:
    for piece in ("The key is ", *PIECES, " indeed."):
        await turn.reply(piece)


async def think(turn: TurnContext) -> None:
    for piece in ("The key is ", *PIECES, " indeed."):
        await turn.think(piece)


async def alternate(turn: TurnContext) -> None:
    """The pieces of the reply and of the thought alternate."""
    for piece in ("The key is ", *PIECES, " indeed."):
        await turn.reply(piece)
        await turn.think(piece)


async def escape(turn: TurnContext) -> None:
    """A piece ends within the escape of a quote in JSON."""
    for piece in ("The key is ", *PIECES[:4], "\\", '"x', '\\"', "-7d1e", " indeed."):
        await turn.reply(piece)


async def interrupt(turn: TurnContext) -> None:
    """A tool call begins another message in the middle of the secret."""
    await turn.reply("The key is " + SECRET[:10])
    await turn.call("files.list", {"path": "."})
    await turn.reply(SECRET[10:] + " indeed.")


SCRIPTS: list[Script] = [reply, think, alternate, escape, interrupt]


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize("script", SCRIPTS)
async def test_secret_in_pieces_is_neither_stored_nor_published(
    script: Script, make_host: HostFactory, tmp_path: Path
):
    for text in await _run(script, make_host, tmp_path):
        assert "4f9a2c81" not in text
        assert "7d1e" not in text
        assert text.startswith("The key is ")
        assert text.endswith(" indeed.")


@pytest.mark.parametrize("script", SCRIPTS)
async def test_control_with_each_piece_masked_alone_the_secret_is_stored(
    script: Script, make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mask = Mask.of([SECRET])

    def mask_alone(stream: StreamMask, piece: str) -> str:
        return mask.mask_known(piece)

    monkeypatch.setattr(StreamMask, "feed", mask_alone)

    for text in await _run(script, make_host, tmp_path):
        assert text.replace("\\", "") == f"The key is {SECRET} indeed."


@pytest.mark.promise("AUD-04")
def test_secret_over_two_content_blocks_is_masked():
    event = mask_event(_blocks(f"a {SECRET[:9]}", f"{SECRET[9:]} z"), Mask.of([SECRET]))

    assert event == _blocks(f"a {MASKED}", f"{MASKED} z")


def test_control_each_block_alone_does_not_contain_the_secret():
    mask = Mask.of([SECRET])

    assert [mask.mask_known(part) for part in (SECRET[:9], SECRET[9:])] == [SECRET[:9], SECRET[9:]]


async def _run(script: Script, make_host: HostFactory, folder: Path) -> set[str]:
    """The whole message and the whole thought, as they were stored and as they were published."""
    servers = {"own": {"command": "cat", "env": {"API_KEY": SECRET}, "disabled": True}}
    async with (
        make_host(servers) as host,
        host.session(cwd=folder) as session,
        Watcher(session.record.events) as watcher,
    ):
        session.agent = ScriptedAgent(script)
        await session.prompt(text_prompt("hello"))
        published = await watcher.caught_up()
        stored = [found.event async for found in host.store.events(session.context.session_id)]
    texts = {
        "".join(event.text for event in events if isinstance(event, kind))
        for events in (stored, published)
        for kind in (Replied, Thought)
    }
    return texts - {""}


def _blocks(*texts: str) -> ToolEnded:
    content = tuple[JsonObject, ...]({"type": "text", "text": text} for text in texts)
    return ToolEnded(call_id="c", outcome=Outcome.COMPLETED, content=content)
