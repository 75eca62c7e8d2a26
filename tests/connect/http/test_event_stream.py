"""Server-sent events: however a stream is split into chunks, the events are the same."""

import re
import time
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.connect.http.event_stream import EventParser, EventTooLongError, ServerSentEvent

LIMIT = 1000


def read(*pieces: bytes, limit: int = LIMIT) -> list[ServerSentEvent]:
    reader = EventParser(limit)
    return [event for piece in pieces for event in reader.feed(piece)]


def parse_by_the_standard(text: bytes) -> list[ServerSentEvent]:
    """Parse a complete stream, literally as the standard describes it."""
    found: list[ServerSentEvent] = []
    event, data = None, list[bytes]()
    for line in re.split(rb"\r\n|\r|\n", text.removeprefix(b"\xef\xbb\xbf"))[:-1]:
        if not line:
            if event is not None:
                event.data = b"\n".join(data)
                found.append(event)
            event, data = None, []
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not name:
            continue
        event = event or ServerSentEvent()
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event.name = value.decode(errors="replace") or "message"
        elif name == b"id" and b"\0" not in value:
            event.id = value.decode(errors="replace")
        elif name == b"retry" and re.fullmatch(rb"[0-9]{1,9}", value):
            event.retry_ms = int(value)
    return found


def split(text: bytes, cuts: Iterable[int]) -> list[bytes]:
    ends = [0, *sorted({cut_at % (len(text) + 1) for cut_at in cuts}), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


LINES = st.sampled_from(
    [
        *(b"data: a", b"data:", b"data", b"data:  b: c", b"data: \xff", b": comment", b"", b"", b"other: x"),
        *(
            b"event: e",
            b"event:",
            b"id: 7",
            b"id: a\0b",
            b"id",
            b"retry: 10",
            b"retry: x",
            b"retry: 9999999999",
        ),
    ]
)
STREAMS = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=12),
    st.sampled_from([b"", b"data: never ended"]),
).map(lambda parts: parts[0] + b"".join(line + end for line, end in parts[1]) + parts[2])


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=8))
def test_events_are_the_same_wherever_the_stream_is_split(text: bytes, cuts: list[int]):
    assert read(*split(text, cuts)) == parse_by_the_standard(text)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=ascii)
def test_stream_may_be_split_inside_a_line_ending(end: bytes):
    lines = (b"\xef\xbb\xbfevent: e", b"id: 7", b"data: a", b"data: b", b"", b": c", b"data: d", b"", b"")
    text = end.join(lines)
    events = [ServerSentEvent("e", b"a\nb", "7"), ServerSentEvent(data=b"d")]

    assert [read(text[:cut_at], text[cut_at:]) for cut_at in range(len(text) + 1)] == [events] * (
        len(text) + 1
    )
    assert read(*(text[cut_at : cut_at + 1] for cut_at in range(len(text)))) == events


def test_empty_chunk_changes_nothing():
    assert read(b"data: a\r", b"", b"\ndata: b\n\n") == [ServerSentEvent(data=b"a\nb")]


def test_event_without_a_name_is_a_message_and_an_id_with_a_nul_is_ignored():
    text = b"event:\nid: 1\nid: 2\0\ndata: a\n\ndata: b\n\n"

    assert read(text) == [ServerSentEvent("message", b"a", "1"), ServerSentEvent("message", b"b")]


def test_byte_order_mark_counts_only_at_the_start():
    assert read(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [ServerSentEvent(data=b"a"), ServerSentEvent()]


ENDLESS = {
    "a line": b"data: " + b"x" * LIMIT * 2,
    "a comment": b":" + b"x" * LIMIT * 2,
    "many lines": (b"data: " + b"x" * 100 + b"\n") * 20,
    "many empty lines": b"data\n" * LIMIT * 2,
}


@pytest.mark.promise("LNK-13")
@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("kind", ENDLESS)
def test_event_that_is_too_long_is_an_error(kind: str, size: int):
    text = ENDLESS[kind]

    with pytest.raises(EventTooLongError, match="more than 1000 bytes"):
        read(*(text[start : start + size] for start in range(0, len(text), size)))


def test_number_of_comments_and_unknown_fields_is_not_limited():
    text = b": ping\n\n" * LIMIT + b"other: x\n" * LIMIT + b"data: a\n\n"

    assert read(text, text) == [ServerSentEvent(data=b"a")] * 2


@pytest.mark.promise("LNK-13")
@pytest.mark.parametrize("line", [b"ab", b"data:ab\n"], ids=["pieces of a line", "lines"])
def test_unfinished_event_takes_no_more_memory_than_its_bytes(line: bytes):
    reader, size = EventParser(1_000_000), 0
    tracemalloc.start()
    try:
        while size < 90_000:
            assert [*reader.feed(line)] == []
            size += 3
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert memory < 200_000


def test_time_to_parse_an_event_is_linear_in_its_length():
    def seconds(megabytes: int) -> float:
        pieces = [b"data: ", *[b"x" * 65536] * (16 * megabytes), b"\n\n"]
        start = time.process_time()
        events = read(*pieces, limit=17 * 1024 * 1024)
        assert [len(event.data) for event in events] == [megabytes * 1024 * 1024]
        return time.process_time() - start

    assert min(seconds(16) for _ in range(3)) < 0.25
