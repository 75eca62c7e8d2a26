"""Every answer fits into its budget, and what it leaves out can be reached."""

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.builtin.stage import answers
from holdfast.builtin.stage.answers import TextPart
from holdfast.builtin.stage.browser import Browser, Stage
from holdfast.builtin.stage.fence import one_line, plain_text
from holdfast.builtin.stage.snapshot_diff import difference
from holdfast.builtin.stage.snapshot_view import Snapshot
from holdfast.builtin.stage.tab import Tab
from tests.stage.client import inside

TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        ['"' * 300, "\\" * 200, "ö" * 400, "😀" * 300, "word " * 100, "[e1] button Pay", "x" * 1990]
    ),
)
LINES = st.lists(TEXTS.map(lambda text: one_line(text, 500)).filter(bool), max_size=60)
NOTICES = st.lists(
    st.tuples(st.sampled_from(["alert dialog dismissed in t1", "URL_DENIED for the page"]), TEXTS), max_size=9
)
BUDGETS = st.integers(200, 3000)


class _Tab:
    """As much of a tab as an answer reads."""

    def __init__(self, *snapshots: Snapshot) -> None:
        self.id = "t1"
        self.snapshots = {snapshot.id: snapshot for snapshot in snapshots}


def stage_with(notices: list[tuple[str, str]]) -> Stage:
    stage = Stage(cast("Browser", None), "s1", "c1")
    for what, text in notices:
        stage.notices.add(what, text)
    return stage


def tokens(answer: dict[str, Any]) -> float:
    return len(msgspec.json.encode(answer)) / 4


def lines_of(answer: dict[str, Any]) -> list[str]:
    shown = inside(answer["page"]).split("\n") if "page" in answer else []
    return [line for line in shown if not line.startswith("! ")]


def follow(stage: Stage, tab: Tab, answer: dict[str, Any], budget: int) -> list[str]:
    """The lines of an answer, and those that its cursors lead to."""
    lines = lines_of(answer)
    while answer.get("left_out"):
        left, cursor = answer["left_out"], answer["cursor"]
        answer = answers.continue_answer(stage, tab, cursor, budget)
        assert tokens(answer) <= budget
        assert answer.get("left_out", 0) <= left
        assert answer.get("cursor") != cursor
        lines += lines_of(answer)
    return lines


@pytest.mark.promise("STG-05")
@settings(deadline=None, max_examples=60)
@given(LINES, NOTICES, BUDGETS, st.one_of(st.none(), st.integers(1, 50)))
def test_a_list_fits_into_its_budget_and_cursors_lead_to_the_rest(
    lines: list[str], notices: list[tuple[str, str]], budget: int, limit: int | None
):
    stage, tab = stage_with(notices), cast("Tab", _Tab())

    answer = answers.page_answer(stage, lines, budget, limit, tab="t1", found=len(lines))

    assert tokens(answer) <= budget
    assert "".join(follow(stage, tab, answer, budget)) == "".join(lines)


@pytest.mark.promise("STG-05")
@settings(deadline=None, max_examples=60)
@given(LINES, NOTICES, BUDGETS, TEXTS)
def test_a_snapshot_fits_into_its_budget_and_each_line_is_reachable(
    lines: list[str], notices: list[tuple[str, str]], budget: int, title: str
):
    snapshot = Snapshot(id="p1", lines=tuple(lines), title=title, url=f"http://example.org/{title}")
    stage, tab = stage_with(notices), cast("Tab", _Tab(snapshot))

    answer = answers.snapshot_answer(stage, tab, snapshot, budget, loaded="loading")
    part: dict[str, Any] = {"left_out": len(lines), "cursor": "p1:0"} if lines else {}
    reached = follow(stage, tab, part, budget)

    assert tokens(answer) <= budget
    assert "".join(reached) == "".join(lines)


@pytest.mark.promise("STG-05")
@settings(deadline=None, max_examples=60)
@given(
    st.lists(TEXTS, max_size=30), LINES.map(lambda lines: [f"! {line}" for line in lines]), NOTICES, BUDGETS
)
def test_a_text_is_read_in_parts_that_fit_without_a_gap(
    texts: list[str], values: list[str], notices: list[tuple[str, str]], budget: int
):
    whole = "\n".join(texts).encode("utf-16-le", "replace")
    stage, start, read = stage_with(notices), 0, ""
    while True:
        part = whole[2 * start : 2 * start + 8 * budget].decode("utf-16-le", "replace")
        answer = answers.text_answer(stage, TextPart(part, start, len(whole) // 2), values, budget, tab="t1")
        assert tokens(answer) <= budget
        shown, values = lines_of(answer), []
        read += "\n".join(shown) + ("\n" if answer.get("next_start") else "")
        if not answer.get("left_out"):
            break
        assert answer["next_start"] > start
        start = answer["next_start"]

    expected = plain_text(whole.decode("utf-16-le"))
    assert expected.replace("\n", "") in read.replace("\n", "") or not expected


@pytest.mark.promise("STG-05")
@settings(deadline=None, max_examples=60)
@given(LINES, LINES, NOTICES, BUDGETS)
def test_changes_fit_into_their_budget_and_cursors_lead_to_the_rest(
    old: list[str], new: list[str], notices: list[tuple[str, str]], budget: int
):
    earlier, later = Snapshot(id="p1", lines=tuple(old)), Snapshot(id="p2", lines=tuple(new))
    stage, tab = stage_with(notices), cast("Tab", _Tab(earlier, later))

    answer = answers.changes_answer(stage, tab, earlier, later, budget)
    lines = follow(stage, tab, answer, budget)

    assert tokens(answer) <= budget
    assert "".join(lines) == "".join(difference(old, new))
