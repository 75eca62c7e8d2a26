"""Estimates how many tokens a text costs, and which lines fit into a budget."""

from collections.abc import Iterable


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a text costs inside a JSON answer: one for every four bytes."""
    return (_size(text) + 3) // 4


def fitting(lines: Iterable[str], budget: int) -> int:
    """Return how many of the lines, from the first on, fit into a budget of tokens."""
    left = budget * 4
    count = 0
    for line in lines:
        left -= _size(line) + 2  # the end of the line is written as \n
        if left < 0:
            break
        count += 1
    return count


def fitting_start(line: str, budget: int) -> str:
    """Return the beginning of a line that fits into a budget of tokens, but at least ten characters."""
    low, high = min(len(line), 10), len(line)
    while low < high:
        middle = (low + high + 1) // 2
        if fitting([line[:middle]], budget):
            low = middle
        else:
            high = middle - 1
    return line[:low]


def _size(text: str) -> int:
    """Estimate how many bytes a text has in JSON."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return size + text.count('"') + text.count("\\") + text.count("\n")
