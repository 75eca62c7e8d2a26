"""Mask secrets in text and JSON: known secrets anywhere, and values under names such as `API_KEY`."""

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from holdfast.model.json import Json
from holdfast.model.secrets import is_secret_value, value_name

MASKED = "[masked]"
# Shorter values occur in ordinary words, so they are masked only as values of a secret name.
MIN_SECRET_LENGTH = 6

_SECRET_PATTERNS = (
    re.compile(r"(?i)\b((?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}"),
    re.compile(
        r"(?i)((?:api[_-]?key|access[_-]?key|authorization|passphrase|password|passwd|secret|token)"
        r"\\?[\"']?\s{0,3}[=:]\s{0,3}\\?[\"']?)(?!bearer\b|basic\b|\[masked\])[^\s\"',;&\\]{3,}"
    ),
    re.compile(r"(://[^\s:/@\"']{0,256}:)[^\s@/\"',\\]{1,256}(?=@)"),
)


@dataclass(frozen=True, slots=True)
class Mask:
    """Known secrets, in every encoding they are likely to occur in, longest first."""

    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Iterable[str]) -> "Mask":
        """A mask for these values, also JSON-escaped, percent-encoded and in base64."""
        encodings = {
            encoding for value in values if len(value) >= MIN_SECRET_LENGTH for encoding in _encodings(value)
        }
        return cls(tuple(sorted(encodings, key=lambda encoding: (-len(encoding), encoding))))

    def plus(self, other: "Mask") -> "Mask":
        """A mask for the secrets of both."""
        encodings = {*self.secrets, *other.secrets}
        return Mask(tuple(sorted(encodings, key=lambda encoding: (-len(encoding), encoding))))

    def mask_text(self, text: str) -> str:
        """Mask known secrets."""
        for secret in self.secrets:
            if secret in text:
                text = text.replace(secret, MASKED)
        return text

    def mask_line(self, text: str) -> str:
        """Mask known secrets and whatever looks like a secret, in a log line or an error."""
        text = self.mask_text(text)
        for pattern in _SECRET_PATTERNS:
            text = pattern.sub(rf"\1{MASKED}", text)
        return text

    def mask_known_in_json(self, value: Json) -> Json:
        """Mask known secrets in the keys and strings of JSON."""
        if not self.secrets:
            return value
        return self._mask_json(value, by_name=False)

    def mask_all_in_json(self, value: Json) -> Json:
        """Mask known secrets, and every value under a secret name, in JSON."""
        return self._mask_json(value, by_name=True)

    def _mask_json(self, value: Json, *, by_name: bool) -> Json:
        match value:
            case str():
                return self.mask_text(value)
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


def _encodings(value: str) -> set[str]:
    raw = value.encode("utf-8", "surrogatepass")
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        *_base64(raw),
    }


def _base64(raw: bytes) -> set[str]:
    """The parts of the value's base64 that are the same wherever it occurs in a longer text, one for each alignment."""
    found: set[str] = set()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode()
        core = encoded[4 if shift else 0 : len(encoded) - (4 if (shift + len(raw)) % 3 else 0)]
        if len(core) >= 8:
            found |= {core, core.replace("+", "-").replace("/", "_")}
    return found
