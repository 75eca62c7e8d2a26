"""Remove or replace control sequences, direction marks and invisible characters in untrusted text."""

import re
import unicodedata
from collections.abc import Callable

from holdfast.model.normal_form import normalize

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)?", re.DOTALL)
_INVISIBLE_CATEGORIES = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
# Letters and marks that are not drawn: fillers, joiners, variation selectors, the empty Braille cell, the null notehead.
# The selectors of emoji are drawn only after an emoji.
INVISIBLE_LETTERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
    "|(?<![#*0-9\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f]"
    "|(?<=[#*0-9])[\ufe0e\ufe0f](?!\u20e3)"
)
"""The pattern is also valid in JavaScript."""

# For `quote`: the letters and accents that are not escaped. An accent on a thin letter, or below a letter, is easily overlooked.
_ESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|.)")
_ACCENTED = "abcdefghkmnopqrsuvwxyzABCDEFGHKMNOPQRSTUVWXYZ"
_OTHER_LETTERS = "ßæÆøØçÇ"
_ACCENTS = "\u0300\u0301\u0302\u0303\u0308\u030a\u030b\u030c"

_EMOJI = "\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_EMOJI_JOINER = re.compile(f"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}]|$)")

# Without spaces, a name cannot pose as a sentence. A path may be longer.
_PLAIN_NAME = re.compile(r"[\w.@+\[\]-][\w./@+\[\]-]{0,79}|/[\w./@+\[\]-]{1,999}", re.ASCII)
_MARKUP = re.compile(r"[^\w .,:;/@+-]|(?<![^\W_])_|_(?![^\W_])|(?<=/)/|/(?=/)")


def is_visible(text: str) -> bool:
    """Whether the text has no control or invisible character; spaces other than ` ` count as invisible."""
    return text.isprintable() and (text.isascii() or INVISIBLE_LETTERS.search(text) is None)


def replace_invisible(text: str, replacement: Callable[[str], str]) -> str:
    """Replace each character for which `is_visible` is false."""
    if not text.isascii():
        text = INVISIBLE_LETTERS.sub(lambda found: replacement(found[0]), text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else replacement(char) for char in text)


def escape_hidden(text: str) -> str:
    """Escape control characters and invisible ones, also letters that `repr` keeps, such as U+2800.

    Line breaks, tabs, all spaces, joined emoji, and bytes of file names that are not UTF-8 stay.
    """
    if is_visible(text):
        return text
    return "\u200d".join(replace_invisible(piece, _escape_char) for piece in split_at_emoji_joiners(text))


def _escape_char(char: str) -> str:
    if char in "\n\t" or unicodedata.category(char) in ("Zs", "Cs"):
        return char
    number = ord(char)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def quote(text: str) -> str:
    """The text as a JSON string in ASCII, so that no letter looks like another, and spaces at the end are visible.

    Letters such as `ä` and `ß`, which look like no other letter, are not escaped.
    """
    import json  # toolkit servers import this module, and do not need json

    return _ESCAPED.sub(_unescape_accented, json.dumps(text))


def _unescape_accented(found: re.Match[str]) -> str:
    letter = chr(int(found[1], 16)) if found[1] else ""
    base, *marks = normalize("NFD", letter) or " "
    is_accented = base in _ACCENTED and bool(marks) and all(map(_ACCENTS.__contains__, marks))
    return letter if letter and (is_accented or letter in _OTHER_LETTERS) else found[0]


def split_at_emoji_joiners(text: str) -> list[str]:
    """Split a text at the joiners (U+200D) that make one emoji of several, such as a woman and a laptop.

    A joiner at the end counts: the next emoji may be in the next piece of a stream.
    """
    return _EMOJI_JOINER.split(text) if "\u200d" in text else [text]


def strip_invisible(text: str) -> str:
    """Remove control sequences and invisible characters from a text. Line breaks and tabs stay."""
    if text.isascii() and (text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()):
        return text
    bare = INVISIBLE_LETTERS.sub("", _ANSI.sub("", text))
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


def display_name(name: str, limit: int = 80) -> str:
    """An untrusted name, for a message of Holdfast. Most editors and chats show messages as Markdown.

    A plain name stays as it is. Any other name is quoted, shortened and put on one line, and what could be Markdown is replaced.
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    return quote_line(_MARKUP.sub("?", to_line(name[: 4 * limit])), limit)


def display_path(path: str) -> str:
    """A path, for a message: quoted like a name, unless it is plain. Words of ours in its place, such as `the client`, stay."""
    return display_name(path, 300) if "/" in path else path


def replace_surrogates(text: str) -> str:
    """The text with lone surrogates replaced. A model's answer has one if the model wrote only half of a character."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def replace_invalid_utf8(name: str) -> str:
    """The name of a file, with bytes that are not UTF-8 replaced. Python keeps such bytes as lone surrogates."""
    return name if name.isascii() else name.encode(errors="surrogateescape").decode(errors="replace")
