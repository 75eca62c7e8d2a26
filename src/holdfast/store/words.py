"""The words of a session: which events have any, how they are matched, and a glimpse of where."""

import re
import unicodedata

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, Prompted, Replied

MOST_WORDS = 32
_SNIPPET = 160
_PIECE = re.compile(r"[^\W_]+")


def spoken(event: Event) -> tuple[str, str] | None:
    """The message and the text that this event adds to what can be searched."""
    match event:
        case Prompted(message_id=message_id, blocks=blocks):
            texts = (block.get("text") for block in blocks)
            return message_id, "\n".join(text for text in texts if isinstance(text, str))
        case Replied(message_id=message_id, text=text):
            return message_id, text
        case _:
            return None


def phrases(words: str) -> tuple[tuple[str, ...], ...]:
    """What to look for: each word of the query, as the pieces it is made of, which must follow each other."""
    found = tuple(phrase for word in words.split() if (phrase := pieces(word)))
    if not found:
        raise HoldfastError(codes.BAD_ARGUMENT, "Name at least one word to search for.")
    if len(found) > MOST_WORDS:
        raise HoldfastError(codes.BAD_ARGUMENT, f"Search for at most {MOST_WORDS} words, not {len(found)}.")
    return found


def pieces(text: str) -> tuple[str, ...]:
    """The letters and digits of a text, in runs, without case and accents."""
    return tuple(_PIECE.findall(_plain(text)))


def snippet(text: str, found: tuple[tuple[str, ...], ...]) -> str:
    """The stretch of the text around the first word that was found, on one line."""
    at = _plain(text).find(found[0][0])
    start = max(0, min(at - _SNIPPET // 3, len(text) - _SNIPPET))
    cut = " ".join(text[start : start + _SNIPPET].split())
    return f"{'…' if start else ''}{cut}{'…' if start + _SNIPPET < len(text) else ''}"


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(character for character in decomposed if not unicodedata.combining(character))
