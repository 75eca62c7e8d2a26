"""A snapshot of a page as lines, and the view of it that fits into a budget. `take_snapshot.py` makes the lines."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.builtin.stage.token_estimate import fitting, fitting_start

_MIN_SIBLINGS = 3  # if fewer children of each element fit, the beginning of the page is shown instead
_CURSOR = re.compile(r"(\w+):(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a page showed: one line for each element or text, indented by its depth."""

    id: str
    lines: tuple[str, ...]
    document: str = ""
    """The id of the page's document."""
    is_part: bool = False
    """Whether it shows only one element of the page."""
    unread: int = 0
    """How many elements were not read, because the page is too large or the time ran out. The tool `find`, and `snapshot` with `within`, can reach them."""
    title: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotView:
    """The lines of a snapshot that fit into a budget."""

    lines: list[str]
    """With markers for lines that are left out."""
    shown: int
    """How many lines of the snapshot are shown."""
    left_out: int
    """How many lines of the snapshot are not shown."""
    cursor: str = ""
    """Where to continue; empty if nothing is left out."""


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """Where an answer continues: a line, and a character in it if the line does not fit into one answer."""

    line: int
    character: int = 0

    def __str__(self) -> str:
        return f"{self.line}.{self.character}" if self.character else str(self.line)


def parse_cursor(cursor: str) -> tuple[str, CursorPosition] | None:
    """Return the id before the colon of a cursor, and the place after it; None if it is not a cursor."""
    matched = _CURSOR.fullmatch(cursor)
    return (matched[1], CursorPosition(int(matched[2]), int(matched[3] or 0))) if matched else None


def view(snapshot: Snapshot, budget: int, start: CursorPosition | None = None) -> SnapshotView:
    """Return the lines that fit into a budget, from `start` on. Without `start`, long lists are shortened to show more of the page."""
    lines = snapshot.lines
    if start is None and fitting(lines, budget) < len(lines) and (shortened := _shorten(snapshot, budget)):
        return shortened
    start = start or CursorPosition(0)
    rest = [lines[start.line][start.character :], *lines[start.line + 1 :]] if start.line < len(lines) else []
    count = fitting(rest, budget)
    end = CursorPosition(start.line + count)
    shown = rest[:count]
    if rest and not count:  # not even one line fits
        shown = [fitting_start(rest[0], budget)]
        end = CursorPosition(start.line, start.character + len(shown[0]))
    return SnapshotView(
        lines=shown,
        shown=count,
        left_out=len(rest) - count,
        cursor=f"{snapshot.id}:{end}" if count < len(rest) else "",
    )


def _shorten(snapshot: Snapshot, budget: int) -> SnapshotView | None:
    """Show only the first children of each element, as many as fit. Returns None if too few fit."""
    ranks = _sibling_ranks(snapshot.lines)
    limit = _largest_limit(snapshot.lines, ranks, budget)
    while limit >= _MIN_SIBLINGS:
        lines, first_left_out = _without_ranks(snapshot, ranks, limit)
        if fitting(lines, budget) == len(lines):
            shown = sum(rank < limit for rank in ranks)
            cursor = f"{snapshot.id}:{first_left_out}"
            return SnapshotView(lines=lines, shown=shown, left_out=len(ranks) - shown, cursor=cursor)
        limit = limit * 3 // 4
    return None


def _sibling_ranks(lines: Sequence[str]) -> list[int]:
    """Return the rank of each line: its position among its siblings or, if it is higher, the rank of its parent."""
    ranks: list[int] = []
    counts: list[int] = []  # by depth: how many siblings so far
    above: list[int] = []  # by depth: the rank of the last line
    for line in lines:
        depth = min(len(line) - len(line.lstrip(" ")), len(counts))
        del counts[depth + 1 :], above[depth + 1 :]
        if depth == len(counts):
            counts.append(0)
            above.append(0)
        rank = max(counts[depth], above[depth - 1] if depth else 0)
        counts[depth] += 1
        above[depth] = rank
        ranks.append(rank)
    return ranks


def _largest_limit(lines: Sequence[str], ranks: Sequence[int], budget: int) -> int:
    """Return up to which rank the lines probably fit into the budget."""
    sizes: Counter[int] = Counter()  # how many characters the lines of each rank have
    for line, rank in zip(lines, ranks, strict=True):
        sizes[rank] += len(line) + 2
    left = budget * 4
    limit = 0
    for rank in sorted(sizes):
        left -= sizes[rank]
        if left < 0:
            break
        limit = rank + 1
    return limit


def _without_ranks(snapshot: Snapshot, ranks: Sequence[int], limit: int) -> tuple[list[str], int]:
    """Return the lines with a rank below the limit, with a marker for each gap, and the index of the first line that is left out."""
    shown: list[str] = []
    first_left_out = gap = -1  # the index where the first gap and the current gap begin
    indent = ""
    for index, (line, rank) in enumerate(zip(snapshot.lines, ranks, strict=True)):
        if rank < limit:
            if gap >= 0:
                shown.append(f"{indent}… {index - gap} lines: cursor {snapshot.id}:{gap}")
                gap = -1
            shown.append(line)
        elif gap < 0:
            gap = index
            first_left_out = index if first_left_out < 0 else first_left_out
            indent = line[: len(line) - len(line.lstrip(" "))]
    if gap >= 0:
        shown.append(f"{indent}… {len(snapshot.lines) - gap} lines: cursor {snapshot.id}:{gap}")
    return shown, first_left_out
