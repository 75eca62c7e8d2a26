"""The parts of events that terminals and editors show."""

from typing import Any

import pytest

from holdfast.model.event import Outcome, Planned, StopReason, ToolCalled, ToolEnded
from holdfast.model.event_text import (
    FileChange,
    PlanEntry,
    failure_code,
    file_change,
    plan_entries,
    stop_text,
    tool_title,
)

DIFF: Any = {"diff": {"path": "/x", "old_text": None, "new_text": "b"}}


def called(server: str = "files", kind: str = "edit", title: str = "") -> ToolCalled:
    return ToolCalled(call_id="c", server=server, tool="write", arguments={}, title=title, kind=kind)


def ended(structured: Any = None, code: str = "") -> ToolEnded:
    return ToolEnded(call_id="c", outcome=Outcome.FAILED, structured=structured, code=code)


@pytest.mark.parametrize(
    ("call", "structured", "change"),
    [
        (called(), DIFF, FileChange(path="/x", old_text=None, new_text="b")),
        (called(), {"diff": {"path": "/x", "new_text": 5}}, None),
        (called(), None, None),
        (called(server="other"), DIFF, None),
        (called(kind="other"), DIFF, None),
        (None, DIFF, None),
    ],
)
def test_only_an_edit_by_the_built_in_file_tools_is_a_file_change(
    call: ToolCalled | None, structured: Any, change: FileChange | None
):
    assert file_change(call, ended(structured)) == change


def test_unknown_priority_and_status_of_a_plan_entry_get_defaults():
    plan = Planned(entries=({"content": "x", "priority": 1}, {"content": "y", "status": "completed"}))

    assert plan_entries(plan) == [
        PlanEntry(content="x", priority="medium", status="pending"),
        PlanEntry(content="y", priority="medium", status="completed"),
    ]


def test_tool_without_a_title_is_shown_by_its_name():
    assert [tool_title(called(title=title)) for title in ("", "Write")] == ["files.write", "Write"]


def test_code_of_holdfast_replaces_the_code_of_the_tool():
    codes = [failure_code(ended({"code": "NO_FILE"}, code)) for code in ("", "TIMEOUT")]

    assert (codes, failure_code(ended())) == (["NO_FILE", "TIMEOUT"], "")


def test_every_stop_reason_but_a_normal_end_has_a_text():
    assert [reason for reason in StopReason if not stop_text(reason)] == [StopReason.END_TURN]
