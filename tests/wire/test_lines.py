import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.lines import Line, LineSplitter, OversizedLine
from holdfast.wire.message_memory import LONG_LINE_BYTES, LongLineMemory


def split(stream: bytes, *sizes: int, limit: int = 1000) -> list[Line]:
    lines = LineSplitter(limit)
    found: list[Line] = []
    for size in sizes:
        found += lines.feed(stream[:size])
        stream = stream[size:]
    return found + lines.feed(stream) + lines.end()


def test_lines_are_returned_without_newlines():
    assert split(b"one\ntwo\n\nfour") == [b"one", b"two", b"", b"four"]


def test_byte_order_mark_is_ignored_only_at_the_start_of_the_stream():
    assert split(b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n", 1) == [b"{}", b"\xef\xbb\xbf{}"]


@pytest.mark.parametrize("size", [LONG_LINE_BYTES - 1, LONG_LINE_BYTES, LONG_LINE_BYTES + 4])
def test_memory_of_a_long_line_with_a_byte_order_mark_is_all_released(size: int):
    memory = LongLineMemory(4 * LONG_LINE_BYTES)
    lines = LineSplitter(2 * LONG_LINE_BYTES, memory)
    lines.feed(b"\xef\xbb\xbf" + b"x" * size)

    [line] = lines.feed(b"\n")
    lines.release(line)

    assert line == b"x" * size
    assert memory.try_grow(0, 4 * LONG_LINE_BYTES)


def test_line_over_the_limit_keeps_only_its_ends():
    assert split(b"x" * 10 + b"\n" + b"y" * 11 + b"\nz\n", limit=10) == [
        b"x" * 10,
        OversizedLine(11, b"y" * 11, b"y" * 11),
        b"z",
    ]


def test_only_the_ends_of_an_endless_line_are_kept():
    lines = LineSplitter(1000)
    for _ in range(10_000):
        assert lines.feed(b"x" * 1000) == []

    assert lines.feed(b"end\n{}\n") == [OversizedLine(10_000_003, b"x" * 1024, b"x" * 253 + b"end"), b"{}"]


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"{}", b"\r\n", b"\xef\xbb\xbf", b"long" * 20, b"\x00", b"\xff"])),
    st.lists(st.integers(0, 60)),
)
def test_lines_do_not_depend_on_how_the_bytes_are_chunked(pieces: list[bytes], sizes: list[int]):
    stream = b"".join(pieces)

    assert split(stream, *sizes, limit=50) == split(stream, limit=50)
