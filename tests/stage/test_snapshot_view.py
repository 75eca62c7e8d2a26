"""Views of a snapshot that fit into a budget."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.builtin.stage.snapshot_view import CursorPosition, Snapshot, view
from holdfast.builtin.stage.token_estimate import estimate_tokens


def _indented(depth: int, text: str) -> str:
    return " " * depth + text


LINES: st.SearchStrategy[list[str]] = st.lists(
    st.builds(_indented, st.integers(0, 4), st.sampled_from("abcdefgh")), max_size=40
)


@pytest.mark.promise("STG-05")
@settings(deadline=None)
@given(LINES, st.integers(20, 200))
def test_a_view_fits_and_its_cursors_lead_to_every_line(lines: list[str], budget: int):
    wide = tuple(f"{line} {'x' * 60}" for line in lines)
    snapshot = Snapshot(id="p1", lines=wide)

    first = view(snapshot, budget)
    seen = [line for line in first.lines if "… " not in line]
    at = 0
    while at < len(wide):
        part = view(snapshot, budget, CursorPosition(at))
        seen += part.lines
        at += part.shown

    assert estimate_tokens("\n".join(first.lines)) <= max(budget, estimate_tokens(wide[0]) if wide else 0)
    assert first.shown + first.left_out == len(wide)
    assert set(seen) == set(wide)


@pytest.mark.promise("STG-05")
def test_long_lists_are_shortened_so_that_what_follows_them_is_shown():
    rows = [f" row {number} {'x' * 40}" for number in range(1000)]
    snapshot = Snapshot(id="p1", lines=("table", *rows, "button Save"))

    shown = view(snapshot, 300)

    assert shown.lines[0] == "table"
    assert shown.lines[-1] == "button Save"
    assert shown.lines[-2] == f" … {shown.left_out} lines: cursor p1:{1002 - shown.left_out - 1}"
