"""The lines of a changed file, as a unified diff."""

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from holdfast.model.event_text import FileChange

_MAX_COMPARED_LINES = 500  # the time to compare grows with the square of the number of lines
_NO_NEWLINE = "\\ No newline at end of file"
_HUNK_START = re.compile(r"([-+])(\d+)")


def diff_lines(change: FileChange) -> Iterator[str]:
    """The changed lines, with one unchanged line before and after each change.

    If very many lines changed, all removed lines come first, then all added lines.
    """
    old, new = _split(change.old_text or ""), _split(change.new_text)
    if (
        change.old_text
        and change.new_text
        and change.old_text.endswith("\n") != change.new_text.endswith("\n")
    ):
        (new if change.old_text.endswith("\n") else old).append(_NO_NEWLINE)
    same_before, same_after = _count_unchanged(old, new)
    removed, added = old[same_before : len(old) - same_after], new[same_before : len(new) - same_after]
    if removed and added and max(len(removed), len(added)) > _MAX_COMPARED_LINES:
        yield f"@@ -{same_before + 1},{len(removed)} +{same_before + 1},{len(added)} @@"
        yield from (f"-{line}" for line in removed)
        yield from (f"+{line}" for line in added)
    else:
        yield from _unified_diff(old, new, same_before, same_after)


def _split(text: str) -> list[str]:
    """The lines of a text. Only a line feed ends a line; a carriage return is shown as a part of the line."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _count_unchanged(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """The number of equal lines at the beginning of both texts, and at their end."""
    shorter = min(len(old), len(new))
    same_before = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    rest = shorter - same_before
    same_after = next((index for index in range(rest) if old[-1 - index] != new[-1 - index]), rest)
    return same_before, same_after


def _unified_diff(old: Sequence[str], new: Sequence[str], same_before: int, same_after: int) -> Iterator[str]:
    """The lines of a unified diff. To save time, all but one of the unchanged lines at each end are not compared."""
    skipped, skipped_after = max(0, same_before - 1), max(0, same_after - 1)
    compared_old, compared_new = (lines[skipped : len(lines) - skipped_after] for lines in (old, new))
    lines = difflib.unified_diff(compared_old, compared_new, lineterm="", n=1)
    for line in islice(lines, 2, None):  # skip the two lines with file names
        yield (
            # Count the skipped lines in the line numbers.
            _HUNK_START.sub(lambda found: f"{found[1]}{int(found[2]) + skipped}", line)
            if line.startswith("@@")
            else line
        )
