from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.lines import Line, Lines, Overlong


def cut(stream: bytes, *sizes: int, limit: int = 1000) -> list[Line]:
    lines = Lines(limit)
    found: list[Line] = []
    for size in sizes:
        found += lines.feed(stream[:size])
        stream = stream[size:]
    return found + lines.feed(stream) + lines.end()


def test_lines_come_without_their_ends():
    assert cut(b"one\ntwo\n\nfour") == [b"one", b"two", b"", b"four"]


def test_a_byte_order_mark_is_ignored_at_the_start_of_the_stream_only():
    assert cut(b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n", 1) == [b"{}", b"\xef\xbb\xbf{}"]


def test_a_line_at_the_limit_is_whole_and_one_over_it_leaves_its_two_ends():
    assert cut(b"x" * 10 + b"\n" + b"y" * 11 + b"\nz\n", limit=10) == [
        b"x" * 10,
        Overlong(11, b"y" * 11, b"y" * 11),
        b"z",
    ]


def test_nothing_of_an_endless_line_is_kept_but_its_ends():
    lines = Lines(1000)
    for _ in range(10_000):
        assert lines.feed(b"x" * 1000) == []

    assert lines.feed(b"end\n{}\n") == [Overlong(10_000_003, b"x" * 1024, b"x" * 253 + b"end"), b"{}"]


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"{}", b"\r\n", b"\xef\xbb\xbf", b"long" * 20, b"\x00", b"\xff"])),
    st.lists(st.integers(0, 60)),
)
def test_the_same_bytes_give_the_same_lines_wherever_they_are_cut(pieces: list[bytes], sizes: list[int]):
    stream = b"".join(pieces)

    assert cut(stream, *sizes, limit=50) == cut(stream, limit=50)
