"""Find known secrets in a text, however a program has escaped them, and in base64."""

import base64
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

from holdfast.masking.escapes import Span, decode_value, may_be_escaped

MIN_SECRET_LENGTH = 6
"""Shorter values occur in ordinary words, so they are masked only as values of a secret name."""
MAX_FRAGMENT_LENGTH = 64
"""Longer secrets are split into fragments of at most this length. Each fragment is masked wherever it occurs."""
# Up to this number of secrets, one search per secret is faster than one look-up per character of a long text.
_MAX_SEPARATE_SEARCHES = 1000
# `contains` first searches for the beginnings of secrets only. Searching for 64 characters takes longer, because `str` first prepares
# a table of them.
_BEGINNING_LENGTH = 8
_LINE = re.compile(r"(?!-----)[!-~]{16,}")  # not the first or last line of a PEM file


def encode_secrets(values: Iterable[str]) -> tuple[str, ...]:
    """The secrets as they are and in base64, both also with their escapes decoded, all split into fragments. Short secrets are left out.

    Of a secret of several lines, such as a private key, each long line without spaces is also a secret: it may be indented elsewhere.
    """
    whole = {value for value in values if len(value) >= MIN_SECRET_LENGTH}
    secrets = {*whole, *(line for value in whole for line in _secret_lines(value))}
    forms = {form for secret in secrets for form in _forms(secret)}
    return tuple(sorted({fragment for form in forms for fragment in split_secret(form)}))


def split_secret(secret: str) -> list[str]:
    """Split a long secret into fragments of about the same length."""
    count = -(-len(secret) // MAX_FRAGMENT_LENGTH) or 1
    borders = [len(secret) * number // count for number in range(count + 1)]
    return [secret[begin:end] for begin, end in pairwise(borders)]


class SecretIndex:
    """Finds many secrets in a text. Each has `MIN_SECRET_LENGTH` to `MAX_FRAGMENT_LENGTH` characters.

    A secret that was added twice must be removed twice. Up to `_MAX_SEPARATE_SEARCHES` secrets, the time of a search is
    proportional to their number. For more secrets, and for short texts, it depends on the length of the text, and hardly on their number.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._counts: dict[str, int] = {}
        """How many times each secret was added."""
        self._lengths: dict[str, dict[int, int]] = {}
        """By the first `MIN_SECRET_LENGTH` characters of secrets: how many secrets there are of each length."""
        self._changes = 0
        self._snapshot: tuple[int, tuple[str, ...]] = (0, ())
        """The value of `_changes`, and the beginnings of all secrets at that time."""
        self._sorted: list[str] | None = None
        """All secrets in order; None if secrets were added or removed since they were sorted."""
        self._first_two: frozenset[str] = frozenset()
        """The first character, and the first two characters, of each secret in `_sorted`."""
        self._may_begin_escaped = False
        """Whether usual encoders may escape the first character of a secret in `_sorted`."""
        self._first_character = re.compile("(?!)")
        """Matches the first character of any secret in `_sorted`."""
        self.add(secrets)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, secrets: Iterable[str]) -> None:
        counts, lengths = self._counts, self._lengths
        for secret in secrets:
            count = counts[secret] = counts.get(secret, 0) + 1
            if count == 1:
                start, length = secret[:MIN_SECRET_LENGTH], len(secret)
                counts_by_length = lengths.setdefault(start, {})
                counts_by_length[length] = counts_by_length.get(length, 0) + 1
        self._changes += 1
        self._sorted = None

    def remove(self, secrets: Iterable[str]) -> None:
        """Undo one `add` of each secret."""
        for secret in secrets:
            self._counts[secret] -= 1
            if self._counts[secret] <= 0:
                del self._counts[secret]
                start, length = secret[:MIN_SECRET_LENGTH], len(secret)
                counts_by_length = self._lengths[start]
                counts_by_length[length] -= 1
                if not counts_by_length[length]:
                    del counts_by_length[length]
                if not counts_by_length:
                    del self._lengths[start]
        self._changes += 1
        self._sorted = None

    def contains(self, text: str) -> bool:
        """Whether there is a secret in the text. Usually there is none, and then this is faster than `find`."""
        count = len(self._counts)
        # In a short text, one look-up per character is faster than many searches.
        if count > _MAX_SEPARATE_SEARCHES or count > 4 * len(text):
            return bool(self._find_together(text))
        changes, beginnings = self._snapshot
        if changes != self._changes:
            changes = self._changes  # before the secrets are read: another thread may add one now
            beginnings = tuple({secret[:_BEGINNING_LENGTH] for secret in tuple(self._counts)})
            self._snapshot = changes, beginnings
        for beginning in beginnings:
            if beginning in text:
                return bool(self._find_separately(text))
        return False

    def find(self, text: str) -> list[Span]:
        """The spans of the secrets in the text, in order. Overlapping and adjacent spans are joined."""
        search_separately = len(self._counts) <= min(_MAX_SEPARATE_SEARCHES, 4 * len(text))
        spans = self._find_separately(text) if search_separately else self._find_together(text)
        return join_spans(spans) if len(spans) > 1 else spans

    def find_partial_at_end(self, text: str) -> int:
        """The index at which an unfinished secret may begin at the end of the text; the length of the text if there is none."""
        self._sort()
        first_two = self._first_two
        for found in self._first_character.finditer(text, max(0, len(text) - MAX_FRAGMENT_LENGTH + 1)):
            begin = found.start()
            if text[begin : begin + 2] in first_two and next(self._longer_secrets(text[begin:]), None):
                return begin
        return len(text)

    @property
    def may_begin_escaped(self) -> bool:
        """Whether usual encoders may escape the first character of a secret."""
        self._sort()
        return self._may_begin_escaped

    def is_nearly_whole(self, prefix: str) -> bool:
        """Whether this text must not be shown, because it is the first three quarters or more of a secret."""
        if len(prefix) < MIN_SECRET_LENGTH:
            return False
        return any(4 * len(prefix) >= 3 * len(secret) for secret in self._longer_secrets(prefix))

    def _longer_secrets(self, prefix: str) -> Iterator[str]:
        """The secrets that begin with this prefix and are longer."""
        ordered = self._sort()
        index = bisect_right(ordered, prefix)
        while index < len(ordered) and ordered[index].startswith(prefix):
            yield ordered[index]
            index += 1

    def _sort(self) -> list[str]:
        """All secrets in order. They are sorted again only if secrets were added or removed."""
        ordered = self._sorted
        if ordered is None:
            ordered = sorted(self._counts)
            self._first_two = frozenset(secret[:size] for secret in ordered for size in (1, 2))
            first_characters = {secret[0] for secret in ordered}
            firsts = "".join(map(re.escape, first_characters))
            self._first_character = re.compile(f"[{firsts}]" if firsts else "(?!)")
            self._may_begin_escaped = any(map(may_be_escaped, first_characters))
            self._sorted = ordered
        return ordered

    def _find_separately(self, text: str) -> list[Span]:
        spans: list[Span] = []
        for secret in list(self._counts):  # a copy: another thread may add one now
            if secret in text:
                begin = text.find(secret)
                while begin >= 0:
                    spans.append((begin, begin + len(secret)))
                    begin = text.find(secret, begin + 1)
        return spans

    def _find_together(self, text: str) -> list[Span]:
        lengths, size = self._lengths, MIN_SECRET_LENGTH
        spans: list[Span] = []
        for begin in [at for at in range(len(text) - size + 1) if text[at : at + size] in lengths]:
            for length in sorted(lengths.get(text[begin : begin + size], ()), reverse=True):
                # At the end of the text, a slice is shorter than `length`: it may be another secret.
                if begin + length <= len(text) and text[begin : begin + length] in self._counts:
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


def _secret_lines(value: str) -> list[str]:
    """The lines of a secret that are long and have no spaces. Line ends may be escaped."""
    lines = re.split(r"\n|\\n", value)
    return [found[0] for line in lines if (found := _LINE.fullmatch(line.strip()))] if len(lines) > 1 else []


def _forms(secret: str) -> Iterator[str]:
    """A secret as it is and in base64, both also without escapes: they are found in a text and in its decoded text."""
    for form in (secret, *_base64(secret.encode("utf-8", "surrogatepass"))):
        yield form
        if len(decoded := decode_value(form)) >= MIN_SECRET_LENGTH:
            yield decoded


def _base64(raw: bytes) -> set[str]:
    """The base64 of the value inside of a longer base64 text: for each of the three alignments, also in the URL-safe alphabet.

    The characters that also depend on the bytes around the value are left out.
    """
    encodings: set[str] = set()
    for shift in range(3):
        bits = 8 * (shift + len(raw))
        first = -(-8 * shift // 6)  # the first character with bits of the value only
        core = base64.b64encode(b"\0" * shift + raw).decode()[first : bits // 6]
        if len(core) >= MIN_SECRET_LENGTH:
            encodings.add(core)
            encodings.add(core.replace("+", "-").replace("/", "_"))
    return encodings
