r"""Finds lines in a text without splitting the whole text: 4 MiB can have millions of lines. Lines end with `\n`."""

_BLOCK_CHARS = 64 * 1024


def count_lines(text: str) -> int:
    r"""Return the number of lines, including a last line without `\n`."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def line_start(text: str, number: int) -> int:
    """Return where the line with this number begins (the first is 1); the length of the text if it has fewer lines."""
    remaining, at = number - 1, 0
    while remaining and at < len(text):
        breaks = text.count("\n", at, at + _BLOCK_CHARS)
        if breaks < remaining:
            remaining -= breaks
            at += _BLOCK_CHARS
            continue
        while remaining:
            at = text.index("\n", at) + 1
            remaining -= 1
    return min(at, len(text))


def line_numbers(text: str, part: str, limit: int) -> list[int]:
    """Return the numbers of the first `limit` lines in which `part` begins."""
    numbers: list[int] = []
    number, counted, at = 1, 0, text.find(part)
    while at >= 0 and len(numbers) < limit:
        number += text.count("\n", counted, at)
        numbers.append(number)
        counted, at = at, text.find(part, at + len(part))
    return numbers
