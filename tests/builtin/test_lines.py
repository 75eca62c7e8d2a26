"""Lines of a text that are found without splitting the text are those that splitting gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.builtin.files import edit, lines

TEXT = st.text(alphabet="ab\n", max_size=40)


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        for module in (edit, lines):
            patch.setattr(module, "_BLOCK_CHARS", 4)
        yield


@given(TEXT, st.integers(1, 20))
def test_lines_are_counted_and_found(text: str, number: int):
    split = text.splitlines(keepends=True)

    assert lines.count_lines(text) == len(split)
    assert lines.line_start(text, number) == sum(map(len, split[: number - 1]))


@given(TEXT, st.text(alphabet="ab\n", min_size=1, max_size=3), st.integers(1, 5))
def test_line_numbers_of_the_first_matches(text: str, part: str, limit: int):
    expected: list[int] = []
    at = text.find(part)
    while at >= 0:
        expected.append(text.count("\n", 0, at) + 1)
        at = text.find(part, at + len(part))

    assert lines.line_numbers(text, part, limit) == expected[:limit]


@given(TEXT, TEXT, TEXT, TEXT)
def test_common_ends(before: str, one: str, other: str, after: str):
    first, second = before + one + after, before + other + after

    assert edit.common_prefix_length(first, second) == _common(first, second)
    assert edit.common_suffix_length(first, second) == _common(first[::-1], second[::-1])


@given(TEXT, TEXT, TEXT, TEXT)
def test_diff_is_whole_lines_around_what_differs(before: str, one: str, other: str, after: str):
    old, new = before + one + after, before + other + after

    old_part, new_part = edit._differing_lines(old, new)

    start = old.find(old_part) if old_part else 0
    places = [
        at
        for at in range(len(old) + 1)
        if old.startswith(old_part, at) and old[:at] + new_part + old[at + len(old_part) :] == new
    ]
    assert places, (start, old_part, new_part)
    assert any(at == 0 or old[at - 1] == "\n" for at in places)


def _common(one: str, other: str) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
