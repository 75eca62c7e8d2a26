"""Text search: the searchable text of events, the words of a query, and the snippets of results."""

import re
import unicodedata

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, Prompted, Replied
from holdfast.model.normal_form import normalize

MAX_WORDS = 32
MAX_LENGTH = 1000
_SNIPPET_LENGTH = 160
_PART = 10_000  # characters
_TOKEN = re.compile(r"[^\W_]+")


def searchable_text(event: Event) -> tuple[str, str] | None:
    """The id of a message and the text that this event adds to it; None if the event has no text to search for."""
    match event:
        case Prompted(message_id=message_id, blocks=blocks):
            texts = (block.get("text") for block in blocks)
            return message_id, "\n".join(text for text in texts if isinstance(text, str))
        case Replied(message_id=message_id, text=text):
            return message_id, text
        case _:
            return None


def parse_words(words: str) -> tuple[tuple[str, ...], ...]:
    """Split a query into words, and each word into its tokens, which must follow each other in the text: `a_b` has two."""
    if len(words) > MAX_LENGTH:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"Enter at most {MAX_LENGTH} characters to search for, not {len(words)}."
        )
    phrases = tuple(phrase for word in words.split() if (phrase := tokenize(word)))
    if not phrases:
        raise HoldfastError(codes.BAD_ARGUMENT, "Enter at least one word to search for.")
    count = sum(map(len, phrases))
    if count > MAX_WORDS:  # a search takes time in proportion to the number of tokens
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"Enter at most {MAX_WORDS} words, not {count}. A word such as `a-b` or `a_b` counts as two.",
        )
    return phrases


def tokenize(text: str) -> tuple[str, ...]:
    """The runs of letters and digits in a text, without case and accents."""
    return tuple(_TOKEN.findall(_normalize(text)))


def contains_words(text: str, phrases: tuple[tuple[str, ...], ...]) -> bool:
    """Whether the text contains all words of a query, as `parse_words` returns them."""
    tokens = tokenize(text)
    return all(
        any(tokens[start : start + len(phrase)] == phrase for start in range(len(tokens) - len(phrase) + 1))
        for phrase in phrases
    )


def make_snippet(text: str, phrases: tuple[tuple[str, ...], ...]) -> str:
    """The part of the text around the first word of the query, on one line."""
    at = _find(text, phrases[0][0])
    start = max(0, min(at - _SNIPPET_LENGTH // 3, len(text) - _SNIPPET_LENGTH))
    cut = " ".join(text[start : start + _SNIPPET_LENGTH].split())
    return f"{'…' if start else ''}{cut}{'…' if start + _SNIPPET_LENGTH < len(text) else ''}"


def _find(text: str, word: str) -> int:
    """About where the word begins in a text; -1 if it is not found. What follows the word is not normalized."""
    for start in range(0, len(text), _PART):
        at = _normalize(text[start : start + _PART + MAX_LENGTH]).find(word)
        if at >= 0:
            return start + at
    return -1


def _normalize(text: str) -> str:
    if text.isascii():
        return text.lower()
    decomposed = normalize("NFD", text.lower())
    return "".join(character for character in decomposed if not unicodedata.combining(character))
