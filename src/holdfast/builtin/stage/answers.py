"""The answers of the tools: our facts as members, and everything that the page wrote in one fenced text."""

from typing import Any

from holdfast.builtin.stage.browser import Stage
from holdfast.builtin.stage.fence import fence, one_line
from holdfast.builtin.stage.snapshot import Snapshot, View, difference, view
from holdfast.builtin.stage.tab import Tab
from holdfast.builtin.stage.tokens import fitting
from holdfast.model import codes
from holdfast.model.worker_threads import WorkerThreads
from holdfast.toolkit import ToolError

THREADS = WorkerThreads("stage-files", threads=4)
_OVERHEAD = 60  # tokens of an answer besides its lines
_MAX_NOTICES = 6


def page_answer(stage: Stage, lines: list[str], budget: int, /, **facts: Any) -> dict[str, Any]:
    """An answer with lines that the page wrote. Those that do not fit into the budget are counted."""
    notices = _notices(stage)
    room = max(0, budget - _OVERHEAD - sum(len(line) // 4 + 1 for line in notices))
    count = fitting(lines, room)
    shown = lines[:count]
    if not shown and lines:
        shown, count = [one_line(lines[0], max(20, room * 3))], 1
    answer = {name: value for name, value in facts.items() if value not in ("", None, 0)}
    if count < len(lines):
        answer["left_out"] = len(lines) - count
    if shown or notices:
        answer["page"] = fence("\n".join((*shown, *notices)))
    return answer


async def snapshot_answer(
    stage: Stage, tab: Tab, snapshot: Snapshot, budget: int, /, **facts: Any
) -> dict[str, Any]:
    """A snapshot, after the title and the address of its page."""
    document = await tab.document()
    page = await tab.run(document, "ready")
    head = f"{one_line(page['title'], 150)} — {one_line(page['url'], 300)}"
    room = budget - _OVERHEAD - len(head) // 4
    shown = view(snapshot, room)
    return _viewed(stage, [head], shown, snapshot, budget, tab=tab.id, **facts)


def continue_snapshot(stage: Stage, tab: Tab, cursor: str, budget: int) -> dict[str, Any]:
    """The lines of an earlier snapshot from a cursor on."""
    name, _, start = cursor.partition(":")
    snapshot = tab.snapshots.get(name)
    if snapshot is None or not start.isdecimal() or int(start) > len(snapshot.lines):
        raise ToolError(
            codes.BAD_CURSOR, f"There is no cursor {cursor[:40]!r} in {tab.id} any more. Take a new snapshot."
        )
    shown = view(snapshot, budget - _OVERHEAD, int(start))
    return _viewed(stage, [], shown, snapshot, budget, tab=tab.id)


def changes_answer(stage: Stage, tab: Tab, earlier: Snapshot, taken: Snapshot, budget: int) -> dict[str, Any]:
    """What changed between two snapshots of one page."""
    changes = difference(earlier.lines, taken.lines)
    facts: dict[str, Any] = {"tab": tab.id, "snapshot": taken.id}
    if not changes:
        return page_answer(stage, [], budget, **facts, changed="nothing")
    answer = page_answer(stage, changes, budget, **facts)
    if "left_out" in answer:
        answer["cursor"] = f"{taken.id}:0"
    return answer


def _viewed(
    stage: Stage, head: list[str], shown: View, snapshot: Snapshot, budget: int, /, **facts: Any
) -> dict[str, Any]:
    answer = page_answer(stage, [*head, *shown.lines], budget + _OVERHEAD, **facts, snapshot=snapshot.id)
    if shown.left_out or snapshot.left_out:
        answer |= {"left_out": shown.left_out + snapshot.left_out, "cursor": shown.cursor}
    return answer


def _notices(stage: Stage) -> list[str]:
    notices = stage.notices.take()
    lines = [f"! {what}{f': {one_line(text, 150)}' if text else ''}" for what, text in notices[:_MAX_NOTICES]]
    if len(notices) > _MAX_NOTICES:
        lines.append(f"! {len(notices) - _MAX_NOTICES} more: see dialogs, downloads, tabs")
    return lines
