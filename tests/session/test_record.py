"""Events are stored, then published, in order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from holdfast.audit.audit import Audit
from holdfast.connect.call import ToolResult
from holdfast.masking import MASKED
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, Prompted, Replied, StopReason, ToolEnded, TurnEnded
from holdfast.model.ids import new_session_id
from holdfast.model.trust import Trust
from holdfast.session.record import Record
from holdfast.session.subscription import Subscription
from holdfast.store.sqlite import SqliteStore
from holdfast.store.types import NewSession
from holdfast.wire.mcp.tools import CallResult
from tests.session.support import Watcher

pytestmark = pytest.mark.anyio

CONTEXT = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)


def reply(number: int) -> Replied:
    return Replied(message_id="m", text=f"{number} secret-4711")


@pytest.fixture
async def record(tmp_path: Path) -> AsyncIterator[Record]:
    async with SqliteStore(tmp_path / "holdfast.db") as store, Audit(store) as audit:
        await store.create(NewSession(context=CONTEXT))
        hold = await store.acquire(CONTEXT.session_id)
        yield Record(CONTEXT, hold, store, audit, Mask.of(["secret-4711"]))


@pytest.mark.promise("STO-01")
async def test_published_event_can_already_be_read_by_another_process(record: Record, tmp_path: Path):
    published: list[str] = []
    ahead: list[int] = []
    async with SqliteStore(tmp_path / "holdfast.db") as other:

        async def read(subscription: Subscription) -> None:
            while batch := await subscription.next_batch():
                stored = await other.session(CONTEXT.session_id)
                assert stored is not None
                published.extend(one.event.text for one in batch if isinstance(one.event, Replied))
                ahead.append(batch[-1].seq - stored.last_seq)

        reading = asyncio.create_task(read(subscription := record.events.subscribe()))
        for number in range(3000):
            await record.append(reply(number))
        await record.flush()
        await subscription.wait_handled(3000)
        subscription.close()
        await reading

    assert published == [f"{number} {MASKED}" for number in range(3000)]
    assert max(ahead) <= 0


@pytest.mark.promise("STO-01")
async def test_events_are_published_again_after_a_failed_write(record: Record):
    async with Watcher(record.events) as watcher:
        await record.append(reply(1))
        await record.append(Replied(message_id="m", text="\ud800"))
        await record.append(reply(2))  # queued behind the event that fails
        with pytest.raises(HoldfastError):
            await record.flush()
        await record.add(reply(3))
        published = await watcher.caught_up()

    assert published == [Replied(message_id="m", text=f"{number} {MASKED}") for number in (1, 3)]


async def test_turn_that_lost_an_event_stores_no_more_and_is_ended_by_the_next_turn(record: Record):
    async with Watcher(record.events) as watcher:
        async with record.turn():
            await record.append(Prompted(turn_id="turn_1", message_id="m", blocks=()))
            bad = await record.append(Replied(message_id="m", text="\ud800"))
            with pytest.raises(HoldfastError):
                await bad.wait_durable()
            for attempt in (record.add, record.append):
                with pytest.raises(HoldfastError) as caught:
                    await attempt(reply(1))
                assert caught.value.code is codes.STREAM_BROKEN
        async with record.turn():
            await record.add(Prompted(turn_id="turn_2", message_id="m", blocks=()))
        published = await watcher.caught_up()

    assert published == [
        Prompted(turn_id="turn_1", message_id="m", blocks=()),
        TurnEnded(turn_id="turn_1", reason=StopReason.INTERRUPTED),
        Prompted(turn_id="turn_2", message_id="m", blocks=()),
    ]


async def test_beginning_of_a_result_that_is_too_large_is_stored(record: Record):
    large = ToolResult(
        result=CallResult(
            content=[text_block("x" * 3_000_000), Raw(b'{"type":"image","data":"AAAA"}'), text_block("short")]
        ),
        outcome=Outcome.COMPLETED,
    )
    call = ToolCall(call_id="call_1", server="s", tool="t")
    async with Watcher(record.events) as watcher:
        await record.calls.add_call(call)
        await record.calls.add_end(call, large, 0.1)
        (_, event) = await watcher.caught_up()

    assert isinstance(event, ToolEnded)
    assert [str(block["text"])[-60:] for block in event.content] == [
        "x" * 20 + "… (3000000 bytes; the rest was not kept)",
        "(image; too large to be kept)",
        "short",
    ]


def text_block(text: str) -> Raw:
    return Raw(msgspec.json.encode({"type": "text", "text": text}))
