"""Remove control sequences, direction marks and invisible characters from untrusted text."""

import re
import unicodedata

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)?", re.DOTALL)
_INVISIBLE_CATEGORIES = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
# Letters and marks that are not drawn: fillers, variation selectors (except those of emoji), the empty Braille cell.
_INVISIBLE_LETTERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)


def strip_invisible(text: str) -> str:
    """Remove control sequences and invisible characters from a text. Line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    bare = _INVISIBLE_LETTERS.sub("", _ANSI.sub("", text))
    return "".join(
        char for char in bare if char in "\n\t" or unicodedata.category(char) not in _INVISIBLE_CATEGORIES
    )


def to_line(text: str) -> str:
    """The text on one line: invisible characters removed, each run of white space replaced by one space."""
    return " ".join(strip_invisible(text).split())


def quote_line(text: str, limit: int) -> str:
    """Put untrusted text in quotation marks, on one line and shortened. It cannot contain the closing mark."""
    line = to_line(text[: 4 * limit]).replace("“", "'").replace("”", "'").replace('"', "'")
    return f"“{line if len(line) <= limit else line[: limit - 1] + '…'}”"
