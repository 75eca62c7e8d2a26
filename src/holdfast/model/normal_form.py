"""The normal forms of Unicode, in linear time. Other modules do not call `unicodedata.normalize` for texts of any length."""

import unicodedata
from typing import Literal

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

MAX_KEY = 256  # characters of a key that are compared

_PIECE = 32  # characters
_MAX_MARKS = 30  # in a row, as in the stream-safe text format of UAX 15
_FIRST_MARK = "\u0300"
# The vowels and final consonants of Hangul, and the vowels of Kirat Rai, join the letter before them, but are no marks.
_JOINING_LETTERS = (("\u1160", "\u11ff"), ("\U00016d63", "\U00016d6a"))


def normalize(form: Form, text: str) -> str:
    """The normal form of a text, as `unicodedata.normalize` returns it, except after more than 30 combining marks in a row.

    Python sorts all marks in a row in a time that grows with the square of their number, and no other thread runs until it
    has finished. So the text is normalized in short pieces, and a longer row of marks is cut.
    """
    if text.isascii():
        return text
    if len(text) <= _PIECE:
        return unicodedata.normalize(form, text)
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = _end_of_piece(text, start)
        pieces.append(unicodedata.normalize(form, text[start:end]))
        start = end
    return "".join(pieces)


def fold_key(key: str) -> str:
    """The form in which the start of a key is compared with keys of ours: without case, width, and spaces around it."""
    return normalize("NFKC", key.lstrip()[:MAX_KEY]).strip().casefold()


def _end_of_piece(text: str, start: int) -> int:
    end = start + _PIECE
    last = min(end + _MAX_MARKS, len(text))
    while end < last and _joins_letter_before(text[end]):
        end += 1
    return min(end, len(text))


def _joins_letter_before(char: str) -> bool:
    """Whether a normal form may move the character, or may join it with the character before it."""
    if char < _FIRST_MARK:
        return False
    first = unicodedata.normalize("NFKD", char)[0]
    return unicodedata.category(first)[0] == "M" or any(
        low <= first <= high for low, high in _JOINING_LETTERS
    )
