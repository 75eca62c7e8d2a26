"""Replace text, and make the diff that is shown for a change."""

from dataclasses import dataclass

from holdfast.builtin.files.disk import MAX_FILE_BYTES, encode_text, too_large_error
from holdfast.builtin.files.lines import common_prefix, common_suffix, line_numbers
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject

_MAX_WHOLE_TEXT = 16 * 1024
_MAX_DIFF_CHARS = 256 * 1024
_MAX_COMPARED_CHARS = 256 * 1024
_CONTEXT_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What to replace in a file. More than one match is an error unless `every` is set."""

    old: str
    new: str
    every: bool

    def apply(self, path: str, text: str) -> tuple[str, int]:
        """The new text, and the number of replacements. Its size is checked before it is made."""
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


def describe_change(real: str, old: str | None, new: str) -> JsonObject:
    """The diff, or a sentence if it is too long to show.

    A short text is shown whole. Of a long one, only the lines that differ, with a few lines around them.
    """
    if old is not None and len(old) + len(new) > _MAX_WHOLE_TEXT:
        old, new = _differing_lines(old, new)
    if len(old or "") + len(new) > _MAX_DIFF_CHARS:
        return {"cut": "The change is too long to show. The file was written."}
    return {"diff": {"path": real, "old_text": old, "new_text": new}}


def _differing_lines(old: str, new: str) -> tuple[str, str]:
    same = common_prefix(old, new)
    start = _line_start_before(old, same)
    for _ in range(_CONTEXT_LINES):
        start = _line_start_before(old, start - 1)
    same_at_end = min(common_suffix(old, new), len(old) - same, len(new) - same)
    old_end, new_end = len(old) - same_at_end, len(new) - same_at_end
    end = old_end
    if not _begins_line(old, old_end) or not _begins_line(new, new_end):
        end = _line_end_after(old, end)
    for _ in range(_CONTEXT_LINES):
        end = _line_end_after(old, end)
    return old[start:end], new[start : new_end + end - old_end]


def _begins_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def _line_start_before(text: str, at: int) -> int:
    """The beginning of the line that contains this position."""
    return text.rfind("\n", 0, max(at, 0)) + 1


def _line_end_after(text: str, at: int) -> int:
    """The end of the line that contains this position."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _likely_cause(text: str, old: str) -> str:
    """Why the text is probably not found; empty if unknown."""
    if len(text) > _MAX_COMPARED_CHARS:
        return ""
    if "\r\n" in text and "\n" in old and old.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        return r": its lines end with \r\n"
    if " ".join(old.split()) in " ".join(text.split()):
        return ": its whitespace differs"
    return ""
