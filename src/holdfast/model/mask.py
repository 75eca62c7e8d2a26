"""Mask secrets in text and JSON: known secrets anywhere, and values that stand where secrets stand."""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from urllib.parse import quote, quote_plus

from holdfast.model.json import Json
from holdfast.model.secret_index import MAX_PIECE_LENGTH, MIN_SECRET_LENGTH, SecretIndex, Span, split_secret
from holdfast.model.secret_names import is_secret_value, value_name
from holdfast.model.secret_text import MASKED, mask_by_place, mask_url_passwords

_NEVER_ESCAPED = re.compile(r"[A-Za-z0-9._~-]+")


@dataclass(frozen=True, slots=True)
class Mask:
    """Known secrets, in every encoding they are likely to occur in. Long ones are split into pieces."""

    secrets: tuple[str, ...] = field(default=(), repr=False)
    index: SecretIndex = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", SecretIndex(self.secrets))

    @classmethod
    def of(cls, values: Iterable[str]) -> "Mask":
        """A mask for these values, also JSON-escaped, percent-encoded and in base64."""
        found = {value for value in values if len(value) >= MIN_SECRET_LENGTH}
        encodings = {encoding for value in found for encoding in _encodings(value)}
        return cls(tuple(sorted({piece for encoding in encodings for piece in split_secret(encoding)})))

    def plus(self, other: "Mask") -> "Mask":
        """A mask for the secrets of both."""
        return Mask(tuple(sorted({*self.secrets, *other.secrets})))

    def mask_text(self, text: str) -> str:
        """Mask known secrets."""
        if not self.secrets:
            return text
        spans = self.index.find(text)
        return hide_spans(text, spans) if spans else text

    def mask_texts(self, texts: Sequence[str]) -> list[str]:
        """Mask known secrets in texts that belong together, also one that is spread over several of them."""
        if not self.secrets or len(texts) < 2:
            return [self.mask_text(text) for text in texts]
        spans = self.index.find("".join(texts))
        if not spans:
            return list(texts)
        masked: list[str] = []
        for text, end in zip(texts, accumulate(map(len, texts)), strict=True):
            start = end - len(text)
            here = [
                (max(first, start) - start, min(last, end) - start)
                for first, last in spans
                if first < end and last > start
            ]
            masked.append(hide_spans(text, here))
        return masked

    def mask_start(self, text: str, length: int) -> str:
        """The first characters of a text, masked. A secret that the cut would break is masked as well."""
        return self.mask_text(text[: length + MAX_PIECE_LENGTH])[:length]

    def mask_line(self, text: str) -> str:
        """Mask known secrets and whatever stands where secrets stand, in a log line, an error or a listing."""
        return mask_by_place(self.mask_text(text))

    def mask_known_in_json(self, value: Json) -> Json:
        """Mask known secrets in the keys and strings of JSON."""
        if not self.secrets:
            return value
        return self._mask_json(value, by_name=False)

    def mask_all_in_json(self, value: Json) -> Json:
        """Mask known secrets, every value under a secret name, and passwords in URLs, in JSON."""
        return self._mask_json(value, by_name=True)

    def _mask_json(self, value: Json, *, by_name: bool) -> Json:
        match value:
            case str():
                return mask_url_passwords(self.mask_text(value)) if by_name else self.mask_text(value)
            case list():
                return [self._mask_json(item, by_name=by_name) for item in value]
            case dict():
                return {
                    self.mask_text(key): MASKED
                    if by_name and is_secret_value(value_name(key, value), item)
                    else self._mask_json(item, by_name=by_name)
                    for key, item in value.items()
                }
            case _:
                return value


def hide_spans(text: str, spans: Iterable[Span]) -> str:
    """The text with each span replaced by the mask."""
    pieces: list[str] = []
    position = 0
    for begin, end in spans:
        pieces += (text[position:begin], MASKED)
        position = end
    return "".join((*pieces, text[position:]))


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
    """As some JSON encoders escape characters that mean something in HTML."""
    return "".join(f"\\u{ord(letter):04x}" if letter in "<>&='" else letter for letter in text)


def _lower_percent(text: str) -> str:
    first, *rest = text.split("%")
    return "%".join((first, *(part[:2].lower() + part[2:] for part in rest)))


def _base64(raw: bytes) -> set[str]:
    """The parts of the value's base64 that are the same wherever it occurs in a longer text, one for each alignment."""
    found: set[str] = set()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode()
        core = encoded[4 if shift else 0 : len(encoded) - (4 if (shift + len(raw)) % 3 else 0)]
        if len(core) >= 8:
            found.add(core)
            found.add(core.replace("+", "-").replace("/", "_"))
    return found
