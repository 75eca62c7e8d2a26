"""The difference between two snapshots of a page, and how to apply it."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

_SHOWN_REMOVALS = 6  # how many removed lines of a change are shown
_HUNK = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")


def difference(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return what changed, like a unified diff without context. Long removals are shortened; `apply` still makes `new` from `old`."""
    hunks: list[str] = []
    i = j = 0
    for start_old, start_new, size in [*_equal_blocks(old, new), (len(old), len(new), 0)]:
        if i < start_old or j < start_new:
            removed, added = old[i:start_old], new[j:start_new]
            hunks.append(f"@@ -{i + 1},{len(removed)} +{j + 1},{len(added)} @@")
            hunks += [f"-{line}" for line in removed[:_SHOWN_REMOVALS]]
            if len(removed) > _SHOWN_REMOVALS:
                hunks.append(f"-… {len(removed) - _SHOWN_REMOVALS} lines")
            hunks += [f"+{line}" for line in added]
        i, j = start_old + size, start_new + size
    return hunks


def apply(old: Sequence[str], changes: Sequence[str]) -> list[str]:
    """Return the new lines, made from the old ones and their `difference`."""
    new: list[str] = []
    at = 0
    for line in changes:
        if header := _HUNK.fullmatch(line):
            start, count = int(header[1]) - 1, int(header[2])
            new += old[at:start]
            at = start + count
        elif line.startswith("+"):
            new.append(line[1:])
    return [*new, *old[at:]]


def _equal_blocks(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return where both are equal, as (position in `old`, position in `new`, length).

    As in patience diff, lines that occur once in both are the anchors.
    """
    prefix = 0
    while prefix < min(len(old), len(new)) and old[prefix] == new[prefix]:
        prefix += 1
    suffix = 0
    while suffix < min(len(old), len(new)) - prefix and old[-1 - suffix] == new[-1 - suffix]:
        suffix += 1
    end_old, end_new = len(old) - suffix, len(new) - suffix
    blocks = [(0, 0, prefix)] if prefix else []
    at_old, at_new = prefix, prefix
    for i, j in _anchors(old, new, prefix, end_old, end_new):
        if i < at_old or j < at_new:
            continue
        start_old, start_new = i, j
        while start_old > at_old and start_new > at_new and old[start_old - 1] == new[start_new - 1]:
            start_old, start_new = start_old - 1, start_new - 1
        end = 1
        while i + end < end_old and j + end < end_new and old[i + end] == new[j + end]:
            end += 1
        blocks.append((start_old, start_new, i + end - start_old))
        at_old, at_new = i + end, j + end
    if suffix:
        blocks.append((end_old, end_new, suffix))
    return blocks


def _anchors(
    old: Sequence[str], new: Sequence[str], start: int, end_old: int, end_new: int
) -> list[tuple[int, int]]:
    """Return the positions, in both, of lines that occur once in both: the largest set of them that has the same order in both."""
    seen_old = Counter(old[start:end_old])
    seen_new = Counter(new[start:end_new])
    places = {new[j]: j for j in range(start, end_new) if seen_new[new[j]] == 1}
    pairs = [(i, places[old[i]]) for i in range(start, end_old) if seen_old[old[i]] == 1 and old[i] in places]
    tails: list[int] = []  # the smallest end of a sequence of each length
    tail_pairs: list[int] = []
    previous: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect_left(tails, j)
        previous.append(tail_pairs[length - 1] if length else -1)
        if length == len(tails):
            tails.append(j)
            tail_pairs.append(number)
        else:
            tails[length], tail_pairs[length] = j, number
    chain: list[tuple[int, int]] = []
    number = tail_pairs[-1] if tail_pairs else -1
    while number >= 0:
        chain.append(pairs[number])
        number = previous[number]
    return chain[::-1]
