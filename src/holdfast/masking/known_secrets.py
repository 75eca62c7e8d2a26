"""Find known secrets in a text, in every encoding that they are likely to occur in."""

import base64
import json
import re
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from urllib.parse import quote, quote_plus

MIN_SECRET_LENGTH = 6
"""Shorter values occur in ordinary words, so they are masked only as values of a secret name."""
MAX_PIECE_LENGTH = 64
"""Longer secrets are split into pieces of at most this length, and each piece is a secret by itself."""
# Up to this number of secrets, one search per secret is faster than one look-up per character of a long text.
_MAX_SEPARATE_SEARCHES = 1000
_NEVER_ESCAPED = re.compile(r"[A-Za-z0-9._~-]+")

Span = tuple[int, int]


def encode_secrets(values: Iterable[str]) -> tuple[str, ...]:
    """These secrets plain, JSON-escaped, percent-encoded and in base64, split into pieces. Very short ones are left out."""
    found = {value for value in values if len(value) >= MIN_SECRET_LENGTH}
    encodings = {encoding for value in found for encoding in _encodings(value)}
    return tuple(sorted({piece for encoding in encodings for piece in split_secret(encoding)}))


def split_secret(secret: str) -> list[str]:
    """Split a long secret into pieces of about the same length."""
    count = -(-len(secret) // MAX_PIECE_LENGTH) or 1
    borders = [len(secret) * number // count for number in range(count + 1)]
    return [secret[begin:end] for begin, end in pairwise(borders)]


class SecretIndex:
    """Secrets of `MIN_SECRET_LENGTH` to `MAX_PIECE_LENGTH` characters. One that was added twice must be removed twice.

    The time of a search depends on the length of the text, hardly on the number of secrets.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._counts: dict[str, int] = {}
        self._lengths: dict[str, dict[int, int]] = {}
        """By the first `MIN_SECRET_LENGTH` characters: how many secrets of each length."""
        self._sorted: list[str] | None = None
        self._starts: frozenset[str] = frozenset()
        self._first = re.compile("(?!)")
        self.add(secrets)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, secrets: Iterable[str]) -> None:
        """Add secrets."""
        counts, lengths = self._counts, self._lengths
        for secret in secrets:
            count = counts[secret] = counts.get(secret, 0) + 1
            if count == 1:
                start, length = secret[:MIN_SECRET_LENGTH], len(secret)
                of_start = lengths.setdefault(start, {})
                of_start[length] = of_start.get(length, 0) + 1
        self._sorted = None

    def remove(self, secrets: Iterable[str]) -> None:
        """Undo one `add`."""
        for secret in secrets:
            self._counts[secret] -= 1
            if self._counts[secret] <= 0:
                del self._counts[secret]
                start, length = secret[:MIN_SECRET_LENGTH], len(secret)
                of_start = self._lengths[start]
                of_start[length] -= 1
                if not of_start[length]:
                    del of_start[length]
                if not of_start:
                    del self._lengths[start]
        self._sorted = None

    def find(self, text: str) -> list[Span]:
        """The spans of the secrets in the text, in order. Overlapping and adjacent spans are joined."""
        is_few = len(self._counts) <= min(_MAX_SEPARATE_SEARCHES, 4 * len(text))
        spans = self._find_few(text) if is_few else self._find_many(text)
        return join_spans(spans) if len(spans) > 1 else spans

    def find_partial_at_end(self, text: str) -> int:
        """The start of the longest suffix of the text that is a prefix of a secret; the length of the text if there is none."""
        if self._sorted is None:
            ordered = sorted(self._counts)
            self._starts = frozenset(secret[:size] for secret in ordered for size in (1, 2))
            firsts = "".join({re.escape(secret[0]) for secret in ordered})
            self._first = re.compile(f"[{firsts}]" if firsts else "(?!)")
            self._sorted = ordered
        starts = self._starts
        for found in self._first.finditer(text, max(0, len(text) - MAX_PIECE_LENGTH + 1)):
            begin = found.start()
            if text[begin : begin + 2] in starts and self._shortest_with_prefix(text[begin:]):
                return begin
        return len(text)

    def is_nearly_whole(self, prefix: str) -> bool:
        """Whether this prefix of a secret is so long that it must not be shown."""
        shortest = self._shortest_with_prefix(prefix)
        return len(prefix) >= MIN_SECRET_LENGTH and 4 * len(prefix) >= 3 * shortest

    def _shortest_with_prefix(self, prefix: str) -> int:
        """The length of the first secret, in sorted order, that continues this prefix; 0 if there is none."""
        ordered = self._sorted or []
        index = bisect_left(ordered, prefix)
        if index < len(ordered) and ordered[index] == prefix:
            index += 1
        found = index < len(ordered) and ordered[index].startswith(prefix)
        return len(ordered[index]) if found else 0

    def _find_few(self, text: str) -> list[Span]:
        spans: list[Span] = []
        for secret in list(self._counts):  # a copy: logging runs in any thread
            if secret in text:
                begin = text.find(secret)
                while begin >= 0:
                    spans.append((begin, begin + len(secret)))
                    begin = text.find(secret, begin + 1)
        return spans

    def _find_many(self, text: str) -> list[Span]:
        lengths, size = self._lengths, MIN_SECRET_LENGTH
        spans: list[Span] = []
        for begin in [at for at in range(len(text) - size + 1) if text[at : at + size] in lengths]:
            for length in sorted(lengths.get(text[begin : begin + size], ()), reverse=True):
                if text[begin : begin + length] in self._counts:
                    spans.append((begin, begin + length))
                    break
        return spans


def join_spans(spans: list[Span]) -> list[Span]:
    """Sort spans, and join those that overlap or are adjacent."""
    spans.sort()
    joined = [spans[0]]
    for begin, end in spans[1:]:
        last_begin, last_end = joined[-1]
        if begin <= last_end:
            joined[-1] = last_begin, max(end, last_end)
        else:
            joined.append((begin, end))
    return joined


def _encodings(value: str) -> set[str]:
    encoded = _base64(value.encode("utf-8", "surrogatepass"))
    if _NEVER_ESCAPED.fullmatch(value):
        return {value, *encoded}
    escaped = json.dumps(value)[1:-1]
    percent = quote(value, safe="", errors="replace")
    return {
        value,
        escaped,
        escaped.replace("/", "\\/"),
        _escape_for_html(escaped),
        json.dumps(escaped)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        percent,
        _lower_percent(percent),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
        *encoded,
    }


def _escape_for_html(text: str) -> str:
    """Escape characters with a meaning in HTML, as some JSON encoders do."""
    return "".join(f"\\u{ord(letter):04x}" if letter in "<>&='" else letter for letter in text)


def _lower_percent(text: str) -> str:
    first, *rest = text.split("%")
    return "%".join((first, *(part[:2].lower() + part[2:] for part in rest)))


def _base64(raw: bytes) -> set[str]:
    """The parts of the value's base64 that do not depend on the bytes around it, one for each alignment."""
    found: set[str] = set()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode()
        core = encoded[4 if shift else 0 : len(encoded) - (4 if (shift + len(raw)) % 3 else 0)]
        if len(core) >= 8:
            found.add(core)
            found.add(core.replace("+", "-").replace("/", "_"))
    return found
