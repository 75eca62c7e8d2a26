"""Replace text, and make the diff that is shown for a change."""

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject

_MAX_WHOLE_TEXT = 16 * 1024
_CONTEXT_LINES = 3


def replace_text(path: str, text: str, old: str, new: str, *, every: bool) -> tuple[str, int]:
    """The new text, and the number of replacements. More than one match is an error unless `every` is set."""
    if not old:
        raise HoldfastError(codes.NO_MATCH, "`old` is empty. To write a whole file, use `write`.")
    if old == new:
        raise HoldfastError(codes.NO_MATCH, "`old` and `new` are the same; there is nothing to change.")
    count = text.count(old)
    if count == 0:
        raise HoldfastError(
            codes.NO_MATCH,
            f"{path!r} does not contain this text{_likely_cause(text, old)}. Nothing was changed.",
        )
    if count > 1 and not every:
        lines = ", ".join(map(str, _line_numbers(text, old)[:10]))
        raise HoldfastError(
            codes.SEVERAL_MATCHES,
            f"{path!r} contains this text {count} times, at lines {lines}. Nothing was changed.",
        )
    return text.replace(old, new), count


def make_diff(real: str, old: str | None, new: str) -> JsonObject:
    """The old and the new text. If they are long, only the lines that differ, with a few lines around them."""
    if old is not None and len(old) + len(new) > _MAX_WHOLE_TEXT:
        old, new = _differing_lines(old.splitlines(keepends=True), new.splitlines(keepends=True))
    return {"path": real, "old_text": old, "new_text": new}


def _differing_lines(old: list[str], new: list[str]) -> tuple[str, str]:
    shortest = min(len(old), len(new))
    first = next((at for at in range(shortest) if old[at] != new[at]), shortest)
    rest = shortest - first
    same_at_end = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    first, same_at_end = max(first - _CONTEXT_LINES, 0), max(same_at_end - _CONTEXT_LINES, 0)
    return "".join(old[first : len(old) - same_at_end]), "".join(new[first : len(new) - same_at_end])


def _line_numbers(text: str, part: str) -> list[int]:
    numbers: list[int] = []
    at = text.find(part)
    while at >= 0:
        numbers.append(text.count("\n", 0, at) + 1)
        at = text.find(part, at + len(part))
    return numbers


def _likely_cause(text: str, old: str) -> str:
    """Why the text is probably not found; empty if unknown."""
    if "\r\n" in text and "\n" in old and old.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        return r": its lines end with \r\n"
    if " ".join(old.split()) in " ".join(text.split()):
        return ": its whitespace differs"
    return ""
