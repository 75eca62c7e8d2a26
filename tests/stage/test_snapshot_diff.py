"""Differences between snapshots."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.builtin.stage.snapshot_diff import apply, difference
from tests.stage.test_snapshot_view import LINES


@pytest.mark.promise("STG-09")
@settings(deadline=None)
@given(LINES, LINES)
def test_a_difference_applied_to_the_earlier_lines_yields_the_later_ones(old: list[str], new: list[str]):
    assert apply(old, difference(old, new)) == new


@pytest.mark.promise("STG-09")
@settings(deadline=None)
@given(LINES, st.data())
def test_a_difference_names_only_what_changed(old: list[str], data: st.DataObject):
    at = data.draw(st.integers(0, len(old)))
    new = [*old[:at], "something new", *old[at:]]

    assert [line for line in difference(old, new) if not line.startswith("@@")] == ["+something new"]


def test_a_difference_between_long_texts_takes_linear_time():
    old = [f"line {number % 50_000}" for number in range(100_000)]
    new = [f"line {number % 49_999}" for number in range(100_000)]

    assert apply(old, difference(old, new)) == new
