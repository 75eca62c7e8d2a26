"""Events are stored, then published, in order; nothing a listener does stops the record."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from holdfast.audit.anchor import MemoryAnchor
from holdfast.audit.audit import Audit
from holdfast.connect.call import ToolResult
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, Outcome, Prompted, Replied, StopReason, ToolEnded, TurnEnded
from holdfast.model.ids import new_session_id
from holdfast.model.mask import MASKED, Mask
from holdfast.model.trust import Trust
from holdfast.session.record import Record
from holdfast.store.sqlite import SqliteStore
from holdfast.store.types import NewSession
from holdfast.wire.mcp.tools import CallResult

pytestmark = pytest.mark.anyio

CONTEXT = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)


def reply(number: int) -> Replied:
    return Replied(message_id="m", text=f"{number} secret-4711")


@pytest.fixture
async def record(tmp_path: Path) -> AsyncIterator[Record]:
    async with SqliteStore(tmp_path / "holdfast.db") as store, Audit(store, MemoryAnchor()) as audit:
        await store.create(NewSession(context=CONTEXT))
        await store.acquire(CONTEXT.session_id)
        yield Record(CONTEXT, store, audit, Mask.of(["secret-4711"]))


@pytest.mark.promise("STO-01")
async def test_published_event_can_already_be_read_by_another_process(record: Record, tmp_path: Path):
    published: list[str] = []
    ahead: list[int] = []
    async with SqliteStore(tmp_path / "holdfast.db") as other:

        async def on_events(events: Sequence[Event]) -> None:
            stored = await other.session(CONTEXT.session_id)
            assert stored is not None
            published.extend(event.text for event in events if isinstance(event, Replied))
            ahead.append(len(published) - stored.last_seq)

        record.listen_in_batches(on_events)
        for number in range(3000):
            await record.append(reply(number))
        await record.wait_published()

    assert published == [f"{number} {MASKED}" for number in range(3000)]
    assert max(ahead) <= 0


async def test_slow_listener_slows_the_writer_down(record: Record):
    gate, count = asyncio.Event(), 0

    async def on_event(event: Event) -> None:
        nonlocal count
        await gate.wait()
        count += 1

    record.listen(on_event)
    streaming = asyncio.create_task(_append_many(record, 5000))
    done, _ = await asyncio.wait([streaming], timeout=0.5)
    gate.set()
    await streaming
    await record.wait_published()

    assert (done, count) == (set(), 5000)


async def test_listener_that_raises_for_one_event_gets_the_others(
    record: Record, caplog: pytest.LogCaptureFixture
):
    published: list[str] = []

    async def on_events(events: Sequence[Event]) -> None:
        texts = [event.text for event in events if isinstance(event, Replied)]
        if any(text.startswith("7 ") for text in texts):
            raise ValueError("a bug in the listener")
        published.extend(texts)

    record.listen_in_batches(on_events)
    with caplog.at_level(logging.ERROR):
        await _append_many(record, 20)
        await record.wait_published()

    assert published == [f"{number} {MASKED}" for number in range(20) if number != 7]
    assert [line.message for line in caplog.records] == ["event not published"]


async def test_events_are_stored_after_the_listener_is_gone(record: Record, tmp_path: Path):
    async def gone(events: Sequence[Event]) -> None:
        raise HoldfastError(codes.CONNECTION_CLOSED, "gone")

    record.listen_in_batches(gone)
    await _append_many(record, 3000)
    await record.wait_published()

    async with SqliteStore(tmp_path / "holdfast.db") as other:
        stored = await other.session(CONTEXT.session_id)
    assert stored is not None
    assert stored.last_seq == 3000


@pytest.mark.promise("STO-01")
async def test_events_are_published_again_after_a_failed_write(record: Record):
    published: list[str] = []

    async def on_event(event: Event) -> None:
        published.append(event.text if isinstance(event, Replied) else type(event).__name__)

    record.listen(on_event)
    await record.append(reply(1))
    await record.append(Replied(message_id="m", text="\ud800"))
    await record.append(reply(2))  # queued behind the event that fails
    with pytest.raises(HoldfastError):
        await record.wait_published()
    await record.add(reply(3))
    await record.wait_published()

    assert published == [f"1 {MASKED}", f"3 {MASKED}"]


async def test_turn_that_lost_an_event_stores_no_more_and_is_ended_by_the_next_turn(record: Record):
    published: list[Event] = []

    async def on_event(event: Event) -> None:
        published.append(event)

    record.listen(on_event)
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
    await record.wait_published()

    assert published == [
        Prompted(turn_id="turn_1", message_id="m", blocks=()),
        TurnEnded(turn_id="turn_1", reason=StopReason.INTERRUPTED),
        Prompted(turn_id="turn_2", message_id="m", blocks=()),
    ]


async def test_writer_cancelled_while_waiting_for_space_gives_its_slot_back(record: Record):
    gate = asyncio.Event()

    async def on_event(event: Event) -> None:
        await gate.wait()

    record.listen(on_event)
    for _ in range(3):
        streaming = asyncio.create_task(_append_many(record, 5000))
        await asyncio.wait([streaming], timeout=0.2)
        streaming.cancel()
        await asyncio.wait([streaming])
    gate.set()
    await asyncio.wait_for(_append_many(record, 5000), 20)
    await record.wait_published()


async def _append_many(record: Record, count: int) -> None:
    for number in range(count):
        await record.append(reply(number))


async def test_beginning_of_a_result_that_is_too_large_is_stored(record: Record):
    published: list[Event] = []

    async def on_event(event: Event) -> None:
        published.append(event)

    large = ToolResult(
        result=CallResult(
            content=[text_block("x" * 3_000_000), Raw(b'{"type":"image","data":"AAAA"}'), text_block("short")]
        ),
        outcome=Outcome.COMPLETED,
    )
    record.listen(on_event)
    call = ToolCall(call_id="call_1", server="s", tool="t")
    await record.add_call(call)
    await record.add_end(call, large, 0.1)
    await record.wait_published()

    (_, event) = published
    assert isinstance(event, ToolEnded)
    assert [str(block["text"])[-60:] for block in event.content] == [
        "x" * 15 + "… (3000000 characters; the rest was not kept)",
        "(image; too large to be kept)",
        "short",
    ]


def text_block(text: str) -> Raw:
    return Raw(msgspec.json.encode({"type": "text", "text": text}))
