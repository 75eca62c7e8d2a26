r"""Find lines in a text without splitting all of it: a text of 4 MiB can have millions of lines. Lines end with `\n`."""

_BLOCK_CHARS = 64 * 1024


def count_lines(text: str) -> int:
    """The number of lines, including a last line without an end."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def line_start(text: str, number: int) -> int:
    """Where the line with this number (from 1) begins; the length of the text if there are fewer lines."""
    left, at = number - 1, 0
    while left and at < len(text):
        found = text.count("\n", at, at + _BLOCK_CHARS)
        if found < left:
            left -= found
            at += _BLOCK_CHARS
            continue
        while left:
            at = text.index("\n", at) + 1
            left -= 1
    return min(at, len(text))


def line_numbers(text: str, part: str, limit: int) -> list[int]:
    """The numbers of the first lines in which `part` begins, at most `limit`."""
    numbers: list[int] = []
    number, counted, at = 1, 0, text.find(part)
    while at >= 0 and len(numbers) < limit:
        number += text.count("\n", counted, at)
        numbers.append(number)
        counted, at = at, text.find(part, at + len(part))
    return numbers


def common_prefix(one: str, other: str) -> int:
    """How many characters at the beginning are the same."""
    shortest = min(len(one), len(other))
    at = 0
    while at < shortest and one[at : at + _BLOCK_CHARS] == other[at : at + _BLOCK_CHARS]:
        at += _BLOCK_CHARS
    at, end = min(at, shortest), min(at + _BLOCK_CHARS, shortest)
    while at < end:
        middle = (at + end + 1) // 2
        if one[at:middle] == other[at:middle]:
            at = middle
        else:
            end = middle - 1
    return at


def common_suffix(one: str, other: str) -> int:
    """How many characters at the end are the same."""
    shortest = min(len(one), len(other))
    size = 0
    while size < shortest:
        step = min(_BLOCK_CHARS, shortest - size)
        if _before_end(one, size, step) == _before_end(other, size, step):
            size += step
            continue
        while step > 1:
            half = step // 2
            if _before_end(one, size, half) == _before_end(other, size, half):
                size += half
                step -= half
            else:
                step = half
        return size
    return size


def _before_end(text: str, size: int, step: int) -> str:
    return text[len(text) - size - step : len(text) - size]
