"""Replaces text in a file's content, and makes the diff that the user sees."""

from dataclasses import dataclass

from holdfast.builtin.files.disk import MAX_FILE_BYTES, encode_text, too_large_error
from holdfast.builtin.files.lines import line_numbers
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject

# Up to this size of the old and the new text together, the diff contains both texts whole.
_MAX_WHOLE_CHARS = 16 * 1024
_MAX_DIFF_CHARS = 256 * 1024
_MAX_COMPARED_CHARS = 256 * 1024  # in longer texts, the cause of a failed search is not looked for
_CONTEXT_LINES = 3
_BLOCK_CHARS = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What to replace in a file. More than one match is an error unless `every` is set."""

    old: str
    new: str
    every: bool

    def apply(self, path: str, text: str) -> tuple[str, int]:
        """Return the new text and the number of replacements. Raises FILE_TOO_LARGE before a text is made that is too large."""
        if not self.old:
            raise HoldfastError(codes.NO_MATCH, "`old` is empty. To write a whole file, use `write`.")
        if self.old == self.new:
            raise HoldfastError(codes.NO_MATCH, "`old` and `new` are the same; there is nothing to change.")
        count = text.count(self.old)
        if count == 0:
            raise HoldfastError(
                codes.NO_MATCH,
                f"{path!r} does not contain this text{_likely_cause(text, self.old)}. Nothing was changed.",
            )
        if count > 1 and not self.every:
            lines = ", ".join(map(str, line_numbers(text, self.old, limit=10)))
            raise HoldfastError(
                codes.SEVERAL_MATCHES,
                f"{path!r} contains this text {count} times, at lines {lines}. Nothing was changed.",
            )
        size = len(text) + count * (len(self.new) - len(self.old))
        if size > MAX_FILE_BYTES:
            raise too_large_error(path, size)
        changed = text.replace(self.old, self.new)
        encode_text(path, changed)
        return changed, count


def describe_change(real_path: str, old: str | None, new: str) -> JsonObject:
    """Return the diff or, if it is too long to show, a sentence that says so. `old` is None for a new file.

    The diff of a short text contains the whole text; that of a long text, the lines that differ and a few around them.
    """
    if old is not None and len(old) + len(new) > _MAX_WHOLE_CHARS:
        old, new = _differing_lines(old, new)
    if len(old or "") + len(new) > _MAX_DIFF_CHARS:
        return {"truncated": "The change is too long to show."}
    return {"diff": {"path": real_path, "old_text": old, "new_text": new}}


def _differing_lines(old: str, new: str) -> tuple[str, str]:
    same_before = common_prefix_length(old, new)
    start = _line_start_before(old, same_before)
    for _ in range(_CONTEXT_LINES):
        start = _line_start_before(old, start - 1)
    same_after = min(common_suffix_length(old, new), len(old) - same_before, len(new) - same_before)
    old_end, new_end = len(old) - same_after, len(new) - same_after
    end = old_end
    if not _begins_line(old, old_end) or not _begins_line(new, new_end):
        end = _line_end_after(old, end)
    for _ in range(_CONTEXT_LINES):
        end = _line_end_after(old, end)
    return old[start:end], new[start : new_end + end - old_end]


def _begins_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def _line_start_before(text: str, at: int) -> int:
    """Return where the line that contains this position begins."""
    return text.rfind("\n", 0, max(at, 0)) + 1


def _line_end_after(text: str, at: int) -> int:
    """Return where the line that contains this position ends."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _likely_cause(text: str, old: str) -> str:
    """Return why the text is probably not found; empty if that is unknown."""
    if len(text) > _MAX_COMPARED_CHARS:
        return ""
    if "\r\n" in text and "\n" in old and old.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        return r": its lines end with \r\n"
    if " ".join(old.split()) in " ".join(text.split()):
        return ": its whitespace differs"
    return ""


def common_prefix_length(one: str, other: str) -> int:
    """Return how many characters are the same at the beginning of both texts."""
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


def common_suffix_length(one: str, other: str) -> int:
    """Return how many characters are the same at the end of both texts."""
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
    """Return the `step` characters before the last `size` characters of a text."""
    return text[len(text) - size - step : len(text) - size]
