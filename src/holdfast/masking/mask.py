"""Mask secrets in text and JSON: known secrets, and values that are likely secrets because of their name or position."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from weakref import WeakValueDictionary

from holdfast.masking import MASKED, obtained_secrets
from holdfast.masking.escapes import (
    MAX_ENCODED_LENGTH,
    Decoded,
    Span,
    decode,
    find_decoded,
    has_escapes,
    unfinished_escapes,
)
from holdfast.masking.known_secrets import MAX_FRAGMENT_LENGTH, SecretIndex, encode_secrets, join_spans
from holdfast.masking.likely_secrets import mask_likely_secrets
from holdfast.masking.secret_names import is_secret_value, value_name
from holdfast.masking.urls import mask_url_passwords
from holdfast.model.json import Json

# Digits become 0, and what follows the digits of a float becomes a dot. Faster than a regular expression.
_MARK_NUMBERS = bytes.maketrans(b"123456789eE", b"000000000..")
_LONG_INTEGER = b"0" * 16

FindSpans = Callable[[str], list[Span]]
"""Finds the spans of the known secrets in a text, in order."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Masks known secrets, however they are escaped, and in base64.

    By default, a mask also masks the secrets that this process has obtained by the time that the mask is used, such as the
    tokens of logins.
    """

    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The secrets in all forms that `encode_secrets` returns. Long ones are split into fragments."""
    includes_obtained: bool = True
    """Whether the secrets that this process has obtained are also masked."""
    session_id: str = ""
    """The session that the mask is for. Values that its servers chose, such as cookies, are masked in this session only."""
    index: SecretIndex = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        secrets, index = _share_index(self.secrets)
        object.__setattr__(self, "secrets", secrets)
        object.__setattr__(self, "index", index)

    @classmethod
    def of(cls, values: Iterable[str]) -> "Mask":
        """A mask for these values, in all forms that `encode_secrets` returns."""
        return cls(encode_secrets(values))

    @property
    def size(self) -> int:
        """The number of masked fragments of secrets, in all forms."""
        return len(self.secrets) + (obtained_secrets.count(self.session_id) if self.includes_obtained else 0)

    @property
    def is_empty(self) -> bool:
        """Whether the mask has no secrets of its own, and does not mask obtained secrets."""
        return not self.secrets and not self.includes_obtained

    def plus(self, other: "Mask") -> "Mask":
        """A mask for the secrets of both. It masks obtained secrets if this mask does."""
        if not other.secrets:
            return self
        return replace(self, secrets=tuple(sorted({*self.secrets, *other.secrets})))

    def for_session(self, session_id: str) -> "Mask":
        """A mask like this one, which also masks the values that this session's servers chose."""
        return replace(self, session_id=session_id)

    def without_obtained(self) -> "Mask":
        """A mask for the secrets of this mask, without obtained secrets.

        It is for questions to the user: servers choose some of the obtained secrets, and must not be able to hide
        words in a question.
        """
        return replace(self, includes_obtained=False)

    def contains(self, text: str, *, is_plain: bool = False) -> bool:
        """Whether there is a known secret in a text. Usually there is none, and then this is faster than `find`.

        With `is_plain`, the text has no escapes.
        """
        return self._contains(text) or (
            not is_plain and has_escapes(text) and any(self._contains(part.text) for part in decode(text))
        )

    def find(self, text: str) -> list[Span]:
        """The spans of the known secrets in a text, in order."""
        spans = [*self._find(text), *find_decoded(text, self._find)]
        return join_spans(spans) if spans else spans

    def find_partial_at_end(self, text: str, *, is_plain: bool = False) -> int:
        """The index at which an unfinished known secret may begin at the end of the text; the length of the text if there is none.

        With `is_plain`, the text has no escapes.
        """
        first = self._find_partial(text)
        if is_plain:
            return first
        offset = max(0, len(text) - MAX_ENCODED_LENGTH)
        tail = text[offset:]
        parts = [*decode(tail)]
        for end, is_left_out in unfinished_escapes(tail):
            parts.append(Decoded(tail[:end]))
            if not is_left_out and self._may_begin_escaped:
                first = min(first, offset + end)
        for part in parts:
            if (begin := self._find_partial(part.text)) < len(part.text):
                first = min(first, offset + part.locate([(begin, begin + 1)])[0][0])
        return first

    def ends_with_nearly_whole(self, text: str) -> bool:
        """Whether the text must not be shown, because it ends with the first three quarters or more of a known secret."""
        tail = text[-MAX_ENCODED_LENGTH:]
        texts = [
            tail,
            *(part.text for part in decode(tail)),
            *(Decoded(tail[:end]).text for end, _ in unfinished_escapes(tail)),
        ]
        return any(
            self._is_nearly_whole(each[begin:])
            for each in texts
            for begin in range(max(0, len(each) - MAX_FRAGMENT_LENGTH), len(each))
        )

    # These methods search a text as it is, without decoding its escapes.

    def _contains(self, text: str) -> bool:
        return (bool(self.secrets) and self.index.contains(text)) or (
            self.includes_obtained and obtained_secrets.contains(text, self.session_id)
        )

    def _find(self, text: str) -> list[Span]:
        spans = self.index.find(text) if self.secrets else []
        return [*spans, *obtained_secrets.find(text, self.session_id)] if self.includes_obtained else spans

    def _find_partial(self, text: str) -> int:
        index = self.index.find_partial_at_end(text) if self.secrets else len(text)
        return min(index, obtained_secrets.find_partial_at_end(text, self.session_id))

    @property
    def _may_begin_escaped(self) -> bool:
        return self.index.may_begin_escaped or obtained_secrets.may_begin_escaped(self.session_id)

    def _is_nearly_whole(self, prefix: str) -> bool:
        return self.index.is_nearly_whole(prefix) or obtained_secrets.is_nearly_whole(prefix, self.session_id)

    def mask_known(self, text: str) -> str:
        """Mask known secrets only. Use this method for content, such as messages and results."""
        return mask_spans(text, self.find(text)) if self.contains(text) else text

    def mask_known_in_texts(self, texts: Sequence[str]) -> list[str]:
        """Mask known secrets in consecutive texts, including a secret that continues from one text to the next."""
        if len(texts) < 2:
            return [self.mask_known(text) for text in texts]
        joined = "".join(texts)
        if not self.contains(joined):
            return list(texts)
        spans = self.find(joined)
        masked: list[str] = []
        next_span = 0  # the first span that does not end before the text
        for text, end in zip(texts, accumulate(map(len, texts)), strict=True):
            start = end - len(text)
            here: list[Span] = []
            while next_span < len(spans) and spans[next_span][0] < end:
                first, last = spans[next_span]
                here.append((max(first, start) - start, min(last, end) - start))
                if last > end:
                    break  # the span continues in the next text
                next_span += 1
            masked.append(mask_spans(text, here) if here else text)
        return masked

    def mask_start(self, text: str, length: int) -> str:
        """At most the first `length` characters of a text, with known secrets masked. A secret across the cut is masked, too."""
        return self.mask_known(text[: length + MAX_ENCODED_LENGTH])[:length]

    def mask_all(self, text: str) -> str:
        """Mask known and likely secrets. Use this method for log lines, errors and listings, but not for content."""
        return mask_likely_secrets(self.mask_known(text))

    def mask_known_in_json(self, value: Json) -> Json:
        """Mask known secrets in the keys, strings and numbers of JSON. Returns the same object if it contains none."""
        return (
            mask_json(value, self.find, self.mask_known, by_name=False)
            if self.contains(texts_in(value))
            else value
        )

    def mask_all_in_json(self, value: Json) -> Json:
        """Mask in JSON: known secrets, every value under a secret name, and passwords in URLs."""
        if not self.contains(texts_in(value)):
            return mask_by_name(value)
        return mask_json(
            value, self.find, lambda text: mask_url_passwords(self.mask_known(text)), by_name=True
        )


class _SharedIndex(SecretIndex):
    """The index that all masks with the same secrets share. Most sessions of a host have the same secrets."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        super().__init__(secrets)
        self.secrets = secrets


_indexes: WeakValueDictionary[tuple[str, ...], _SharedIndex] = WeakValueDictionary()


def _share_index(secrets: tuple[str, ...]) -> tuple[tuple[str, ...], SecretIndex]:
    """The tuple and the index that all masks with these secrets share."""
    index = _indexes.get(secrets)
    if index is None:
        index = _indexes[secrets] = _SharedIndex(secrets)
    return index.secrets, index


def mask_json(value: Json, find: FindSpans, mask_text: Callable[[str], str], *, by_name: bool) -> Json:
    """Mask strings with `mask_text`, and the keys and numbers in which `find` finds a secret.

    With `by_name`, every value under a secret name is masked as well.
    """
    match value:
        case str():
            return mask_text(value)
        case list():
            return [mask_json(item, find, mask_text, by_name=by_name) for item in value]
        case dict():
            return {
                name: MASKED
                if by_name and is_secret_value(value_name(key, value), item)
                else mask_json(item, find, mask_text, by_name=by_name)
                for name, (key, item) in zip(_mask_keys(value, find), value.items(), strict=True)
            }
        case int() | float() if find(_number_text(value)):
            return MASKED
        case _:
            return value


def _mask_keys(keys: Mapping[str, object], find: FindSpans) -> Iterator[str]:
    """Mask the keys of an object. Masked keys that would be equal get a number, so that no value is lost."""
    taken = set(keys)
    counts: dict[str, int] = {}
    for key in keys:
        spans = find(key)
        name = masked = mask_spans(key, spans) if spans else key
        while name != key and name in taken:
            counts[masked] = counts.get(masked, 1) + 1
            name = f"{masked} ({counts[masked]})"
        taken.add(name)
        yield name


def texts_in(*values: Json) -> str:
    """All keys, strings and numbers in JSON, one per line, to search them all at once."""
    texts: list[str] = []
    rest: list[Json] = [*values]
    while rest:
        match rest.pop():
            case str() as text:
                texts.append(text)
            case dict() as items:
                texts += items
                rest += items.values()
            case list() as items:
                rest += items
            case int() | float() as number:
                texts.append(_number_text(number))
            case _:
                pass
    return "\n".join(texts)


def searchable_json(raw: bytes) -> str | None:
    """JSON text to search in place of `texts_in` of its value.

    None if a text or a number in it may be written differently in `texts_in`: an escape, a float, or a very long integer.
    """
    marked = raw.translate(_MARK_NUMBERS)
    if raw.find(b"\\") >= 0 or marked.find(b"0.") >= 0 or marked.find(_LONG_INTEGER) >= 0:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def mask_by_name(value: Json) -> Json:
    """Mask every value under a secret name, and passwords in URLs."""
    match value:
        case dict():  # checked first, because the arguments of every call are a dict
            return {
                key: MASKED
                if is_secret_value(key if key != "value" else value_name(key, value), item)
                else mask_url_passwords(item)
                if isinstance(item, str)
                else mask_by_name(item)
                for key, item in value.items()
            }
        case str():
            return mask_url_passwords(value)
        case list():
            return [mask_by_name(item) for item in value]
        case _:
            return value


def _number_text(value: float) -> str:
    """A number as Python writes it. For a whole float also as an integer: `1e+16 10000000000000000`."""
    text = str(value)
    return f"{text} {int(value)}" if isinstance(value, float) and value.is_integer() else text


def mask_spans(text: str, spans: Iterable[Span]) -> str:
    """Replace each span of the text with `[masked]`. The spans are in order and do not overlap."""
    pieces: list[str] = []
    position = 0
    for begin, end in spans:
        pieces += (text[position:begin], MASKED)
        position = end
    return "".join((*pieces, text[position:]))
