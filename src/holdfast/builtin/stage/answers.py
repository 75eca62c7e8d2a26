"""The answers of the tools. Facts from Holdfast are members of the answer. All text from the page is in the member `page`, in a fence.

Budgets are in tokens. Lines that do not fit into the budget are counted and kept for a while: the caller gets them by calling
`snapshot` with the answer's cursor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.builtin.stage.browser import Stage
from holdfast.builtin.stage.fence import fence, one_line, plain_text
from holdfast.builtin.stage.snapshot_diff import difference
from holdfast.builtin.stage.snapshot_view import CursorPosition, Snapshot, SnapshotView, parse_cursor, view
from holdfast.builtin.stage.tab import Tab
from holdfast.builtin.stage.token_estimate import estimate_tokens, fitting, fitting_start
from holdfast.model import codes
from holdfast.toolkit import ToolError

_OVERHEAD = 60  # tokens of an answer besides its lines
_MAX_NOTICES = 6


def page_answer(
    stage: Stage, lines: Sequence[str], budget: int, /, limit: int | None = None, **facts: Any
) -> dict[str, Any]:
    """Make an answer with lines that the page wrote: those that fit into the budget, and at most `limit`."""
    notices = _notices(stage, budget // 3)
    lines_budget = budget - _OVERHEAD - _token_count(notices)
    shown = view(Snapshot(id="", lines=tuple(lines[:limit])), lines_budget, CursorPosition(0))
    answer = _answer([*shown.lines, *notices], facts)
    if shown.shown < len(lines):
        # A cursor is `<id>:<place>`, and the id is empty here. There is no cursor if only `limit` cut the lines.
        place = shown.cursor.removeprefix(":") or str(shown.shown)
        answer |= {"left_out": len(lines) - shown.shown, "cursor": stage.keep_lines(lines, place)}
    return answer


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text that the page wrote. Positions and lengths count UTF-16 code units, as in JavaScript."""

    text: str
    start: int
    length: int
    """The length of the whole text."""


def text_answer(
    stage: Stage, part: TextPart, values: Sequence[str], budget: int, /, **facts: Any
) -> dict[str, Any]:
    """Make an answer with as much of a text as fits into the budget, and the lines in `values`, such as attributes.

    The text continues at the answer's `next_start`.
    """
    notices = _notices(stage, budget // 3)
    lines_budget = budget - _OVERHEAD - _token_count(notices)
    values = values[: fitting(values, lines_budget // 2)]
    text = _beginning(part.text, lines_budget - _token_count(values))
    end = part.start + len(text.encode("utf-16-le")) // 2
    facts |= {"characters": part.length}
    if end < part.length:
        facts |= {"left_out": part.length - end, "next_start": end}
    return _answer([*plain_text(text).removesuffix("\n").split("\n"), *values, *notices], facts)


def _beginning(text: str, budget: int) -> str:
    """Return the first lines of a text that fit into a budget. If not even one line fits, return a part of it."""
    lines = text.split("\n")
    count = fitting(lines, budget)
    if count == len(lines):
        return text
    return "\n".join(lines[:count]) + "\n" if count else fitting_start(lines[0], budget)


def snapshot_answer(
    stage: Stage, tab: Tab, snapshot: Snapshot, budget: int, /, **facts: Any
) -> dict[str, Any]:
    """Make an answer with a snapshot, which begins with the title and the address of its page."""
    head = fitting_start(_head(snapshot), budget // 3)
    notices = _notices(stage, budget // 3)
    shown = view(snapshot, budget - _OVERHEAD - _token_count([head, *notices]))
    answer = _answer([head, *shown.lines, *notices], {"tab": tab.id, **facts, "snapshot": snapshot.id})
    return answer | _rest(shown, snapshot)


def continue_answer(stage: Stage, tab: Tab, cursor: str, budget: int) -> dict[str, Any]:
    """Make an answer with the lines of an earlier answer that follow a cursor."""
    name, start = parse_cursor(cursor) or ("", CursorPosition(0))
    lines = stage.kept_lines.get(name)
    snapshot = tab.snapshots.get(name) if lines is None else Snapshot(id=name, lines=tuple(lines))
    if snapshot is None or start.line > len(snapshot.lines):
        raise ToolError(
            codes.BAD_CURSOR,
            f"There is no cursor {cursor[:40]!r} in {tab.id}, or its lines are no longer kept. Ask again without a cursor.",
        )
    notices = _notices(stage, budget // 3)
    shown = view(snapshot, budget - _OVERHEAD - _token_count(notices), start)
    answer = _answer([*shown.lines, *notices], {"tab": tab.id})
    return answer | _rest(shown, snapshot)


def changes_answer(stage: Stage, tab: Tab, earlier: Snapshot, taken: Snapshot, budget: int) -> dict[str, Any]:
    """Make an answer with what changed between two snapshots of one page. A new title or address comes first."""
    changes = difference(earlier.lines, taken.lines)
    if _head(earlier) != _head(taken):
        changes = [fitting_start(f"! now {_head(taken)}", budget // 3), *changes]
    facts: dict[str, Any] = {"tab": tab.id, "snapshot": taken.id}
    if not changes:
        return page_answer(stage, [], budget, **facts, changed="nothing")
    return page_answer(stage, changes, budget, **facts)


def _head(snapshot: Snapshot) -> str:
    return f"{one_line(snapshot.title, 150)} — {one_line(snapshot.url, 300)}"


def _answer(lines: list[str], facts: dict[str, Any]) -> dict[str, Any]:
    answer = {name: value for name, value in facts.items() if value not in ("", None, 0)}
    return {**answer, "page": fence("\n".join(lines))} if lines else answer


def _rest(shown: SnapshotView, snapshot: Snapshot) -> dict[str, Any]:
    """Return the members that say what the answer does not show."""
    rest: dict[str, Any] = {"left_out": shown.left_out, "cursor": shown.cursor} if shown.left_out else {}
    return {**rest, "unread": snapshot.unread} if snapshot.unread else rest


def _token_count(lines: Sequence[str]) -> int:
    return sum(estimate_tokens(line) + 1 for line in lines)


def _notices(stage: Stage, budget: int) -> list[str]:
    notices = stage.notices.take()
    lines = [
        f"! {notice.what}{f': {one_line(notice.page_text, 150)}' if notice.page_text else ''}"
        for notice in notices[:_MAX_NOTICES]
    ]
    count = fitting(lines, budget - 20)  # 20 tokens for the line that counts the notices left out
    if count < len(notices):
        return [*lines[:count], f"! {len(notices) - count} more: see dialogs, downloads, tabs"]
    return lines
