"""The encodings in which a secret is likely to occur in a text."""

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from holdfast.model.secret_index import MIN_SECRET_LENGTH, split_secret

_NEVER_ESCAPED = re.compile(r"[A-Za-z0-9._~-]+")


def encode_secrets(values: Iterable[str]) -> tuple[str, ...]:
    """These secrets, also JSON-escaped, percent-encoded and in base64, split into pieces. Very short ones are left out."""
    found = {value for value in values if len(value) >= MIN_SECRET_LENGTH}
    encodings = {encoding for value in found for encoding in _encodings(value)}
    return tuple(sorted({piece for encoding in encodings for piece in split_secret(encoding)}))


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
