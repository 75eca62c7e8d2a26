"""Store, then tell: what a listener hears is on the disk, in order, and nothing it does stops the record."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from holdfast.audit.anchor import MemoryAnchor
from holdfast.audit.audit import Audit
from holdfast.connect.call import Answer
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, Outcome, Prompted, Replied, StopReason, ToolEnded, TurnEnded
from holdfast.model.ids import new_session_id
from holdfast.model.mask import MASKED, Mask
from holdfast.model.trust import Trust
from holdfast.session.record import Record
from holdfast.store.rows import NewSession
from holdfast.store.sqlite import SqliteStore
from holdfast.wire.mcp.tools import CallResult

pytestmark = pytest.mark.anyio

CONTEXT = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)


def said(number: int) -> Replied:
    return Replied(message_id="m", text=f"{number} secret-4711")


@pytest.fixture
async def record(tmp_path: Path) -> AsyncIterator[Record]:
    async with SqliteStore(tmp_path / "holdfast.db") as store, Audit(store, MemoryAnchor()) as audit:
        await store.create(NewSession(context=CONTEXT))
        await store.hold(CONTEXT.session_id)
        yield Record(CONTEXT, store, audit, Mask.of(["secret-4711"]))


@pytest.mark.promise("STO-01")
async def test_what_is_told_can_be_read_by_another_process_already(record: Record, tmp_path: Path):
    told: list[str] = []
    ahead: list[int] = []
    async with SqliteStore(tmp_path / "holdfast.db") as other:

        async def hear(events: Sequence[Event]) -> None:
            stored = await other.session(CONTEXT.session_id)
            assert stored is not None
            told.extend(event.text for event in events if isinstance(event, Replied))
            ahead.append(len(told) - stored.last_seq)

        record.listen_to_many(hear)
        for number in range(3000):
            await record.stream(said(number))
        await record.told()

    assert told == [f"{number} {MASKED}" for number in range(3000)]
    assert max(ahead) <= 0


async def test_whoever_listens_slowly_holds_up_whoever_records(record: Record):
    gate, heard = asyncio.Event(), 0

    async def hear(event: Event) -> None:
        nonlocal heard
        await gate.wait()
        heard += 1

    record.listen(hear)
    streaming = asyncio.create_task(_stream(record, 5000))
    done, _ = await asyncio.wait([streaming], timeout=0.5)
    gate.set()
    await streaming
    await record.told()

    assert (done, heard) == (set(), 5000)


async def test_an_event_that_cannot_be_told_does_not_silence_the_others(
    record: Record, caplog: pytest.LogCaptureFixture
):
    told: list[str] = []

    async def hear(events: Sequence[Event]) -> None:
        texts = [event.text for event in events if isinstance(event, Replied)]
        if any(text.startswith("7 ") for text in texts):
            raise ValueError("a mistake of ours")
        told.extend(texts)

    record.listen_to_many(hear)
    with caplog.at_level(logging.ERROR):
        await _stream(record, 20)
        await record.told()

    assert told == [f"{number} {MASKED}" for number in range(20) if number != 7]
    assert [line.message for line in caplog.records] == ["event not told"]


async def test_when_nobody_listens_any_more_events_are_stored_all_the_same(record: Record, tmp_path: Path):
    async def gone(events: Sequence[Event]) -> None:
        raise HoldfastError(codes.CONNECTION_CLOSED, "gone")

    record.listen_to_many(gone)
    await _stream(record, 3000)
    await record.told()

    async with SqliteStore(tmp_path / "holdfast.db") as other:
        stored = await other.session(CONTEXT.session_id)
    assert stored is not None
    assert stored.last_seq == 3000


@pytest.mark.promise("STO-01")
async def test_after_a_write_that_failed_the_listener_is_still_told(record: Record):
    told: list[str] = []

    async def hear(event: Event) -> None:
        told.append(event.text if isinstance(event, Replied) else type(event).__name__)

    record.listen(hear)
    await record.stream(said(1))
    await record.stream(Replied(message_id="m", text="\ud800"))
    await record.stream(said(2))  # on its way behind the one that fails
    with pytest.raises(HoldfastError):
        await record.told()
    await record.add(said(3))
    await record.told()

    assert told == [f"1 {MASKED}", f"3 {MASKED}"]


async def test_a_turn_that_lost_a_part_of_itself_is_not_gone_on_with_and_the_next_one_ends_it(record: Record):
    told: list[Event] = []

    async def hear(event: Event) -> None:
        told.append(event)

    record.listen(hear)
    async with record.turn():
        await record.stream(Prompted(turn_id="turn_1", message_id="m", blocks=()))
        bad = await record.stream(Replied(message_id="m", text="\ud800"))
        with pytest.raises(HoldfastError):
            await bad.durable()
        for attempt in (record.add, record.stream):
            with pytest.raises(HoldfastError) as caught:
                await attempt(said(1))
            assert caught.value.code is codes.STREAM_BROKEN
    async with record.turn():
        await record.add(Prompted(turn_id="turn_2", message_id="m", blocks=()))
    await record.told()

    assert told == [
        Prompted(turn_id="turn_1", message_id="m", blocks=()),
        TurnEnded(turn_id="turn_1", reason=StopReason.INTERRUPTED),
        Prompted(turn_id="turn_2", message_id="m", blocks=()),
    ]


async def test_whoever_is_cancelled_while_it_waits_for_room_takes_none_away(record: Record):
    gate = asyncio.Event()

    async def hear(event: Event) -> None:
        await gate.wait()

    record.listen(hear)
    for _ in range(3):
        streaming = asyncio.create_task(_stream(record, 5000))
        await asyncio.wait([streaming], timeout=0.2)
        streaming.cancel()
        await asyncio.wait([streaming])
    gate.set()
    await asyncio.wait_for(_stream(record, 5000), 20)
    await record.told()


async def _stream(record: Record, count: int) -> None:
    for number in range(count):
        await record.stream(said(number))


async def test_of_an_answer_too_large_to_keep_its_beginning_is_kept(record: Record):
    heard: list[Event] = []

    async def listen(event: Event) -> None:
        heard.append(event)

    large = Answer(
        result=CallResult(
            content=[text_block("x" * 3_000_000), Raw(b'{"type":"image","data":"AAAA"}'), text_block("short")]
        ),
        outcome=Outcome.COMPLETED,
    )
    record.listen(listen)
    call = ToolCall(call_id="call_1", server="s", tool="t")
    await record.called(call)
    await record.ended(call, large, 0.1)
    await record.told()

    (_, event) = heard
    assert isinstance(event, ToolEnded)
    assert [str(block["text"])[-60:] for block in event.content] == [
        "x" * 15 + "… (3000000 characters; the rest was not kept)",
        "(image; too large to be kept)",
        "short",
    ]


def text_block(text: str) -> Raw:
    return Raw(msgspec.json.encode({"type": "text", "text": text}))
