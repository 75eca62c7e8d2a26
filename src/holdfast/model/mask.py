"""Keep secrets out of what is written down: known values wherever they stand, and whatever a telling name holds."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import quote

from holdfast.model.json import Json

MASKED = "[masked]"
# A shorter value would be found in innocent words everywhere; it is masked under its name only.
SHORTEST = 6

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_TELLING = {
    "apikey", "auth", "authorization", "cookie", "cookies", "credential", "credentials", "passphrase", "passwd",
    "password", "pwd", "secret", "secrets", "signature", "token",
}  # fmt: skip
_TELLING_PAIRS = {("access", "key"), ("api", "key"), ("private", "key"), ("pass", "word"), ("pass", "phrase")}
_INNOCENT = {("progress", "token"), ("page", "token")}
_FOLDERS = {"PWD", "OLDPWD"}  # every shell's word for where it is

_SPOKEN = (
    re.compile(r"(?i)\b((?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}"),
    re.compile(
        r"(?i)((?:api[_-]?key|access[_-]?key|authorization|passphrase|password|passwd|secret|token)"
        r"\\?[\"']?\s{0,3}[=:]\s{0,3}\\?[\"']?)(?!bearer\b|basic\b|\[masked\])[^\s\"',;&\\]{3,}"
    ),
    re.compile(r"(://[^\s:/@\"']{0,256}:)[^\s@/\"',\\]{1,256}(?=@)"),
)


@dataclass(frozen=True, slots=True)
class Mask:
    """The secret values to hide, longest first, in every spelling they are likely to be met in."""

    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Iterable[str]) -> "Mask":
        """A mask for these values; each also as JSON, percent-encoded and base64 text."""
        spellings = {spelling for value in values if len(value) >= SHORTEST for spelling in _spellings(value)}
        return cls(tuple(sorted(spellings, key=lambda spelling: (-len(spelling), spelling))))

    def plus(self, other: "Mask") -> "Mask":
        """A mask that hides what either hides."""
        spellings = {*self.secrets, *other.secrets}
        return Mask(tuple(sorted(spellings, key=lambda spelling: (-len(spelling), spelling))))

    def text(self, text: str) -> str:
        """The text without any known secret."""
        for secret in self.secrets:
            if secret in text:
                text = text.replace(secret, MASKED)
        return text

    def line(self, text: str) -> str:
        """A line for a log or an error: without known secrets, and without what looks like one."""
        text = self.text(text)
        for spoken in _SPOKEN:
            text = spoken.sub(rf"\1{MASKED}", text)
        return text

    def values(self, value: Json) -> Json:
        """The same JSON without any known secret, in keys and values alike."""
        if not self.secrets:
            return value
        return self._walk(value, names=False)

    def json(self, value: Json) -> Json:
        """The same JSON without known secrets, and without whatever stands under a telling name."""
        return self._walk(value, names=True)

    def _walk(self, value: Json, *, names: bool) -> Json:
        match value:
            case str():
                return self.text(value)
            case list():
                return [self._walk(item, names=names) for item in value]
            case dict():
                return {
                    self.text(key): MASKED
                    if names and hides(name_of(key, value), item)
                    else self._walk(item, names=names)
                    for key, item in value.items()
                }
            case _:
                return value


def secrets_in(entries: Mapping[str, str]) -> tuple[str, ...]:
    """The secret values of an environment or of headers: those under telling names, with and without their scheme."""
    found: list[str] = []
    for name, value in entries.items():
        if tells(name) and value and name not in _FOLDERS:
            found.append(value)
            scheme, _, rest = value.partition(" ")
            if rest and scheme.lower() in {"bearer", "basic", "token"}:
                found.append(rest.strip())
    return tuple(found)


def tells(name: str) -> bool:
    """Whether a name says that its value is a secret: `API_KEY`, `x-auth-token`, `userPassword`."""
    words = [word.lower() for word in _WORD.findall(name)]
    pairs = set(pairwise(words))
    if pairs & _INNOCENT:
        return False
    return bool(_TELLING.intersection(words) or pairs & _TELLING_PAIRS or "".join(words) in _TELLING)


def hides(name: str, value: Json) -> bool:
    """Whether this value must not be seen because of the name it stands under."""
    return value not in (None, "", False, True) and tells(name)


def name_of(key: str, entry: Mapping[str, Json]) -> str:
    """What a value of an object is called: by its key, or as variables and headers are listed, by the name beside it."""
    name = entry.get("name") if key == "value" else None
    return name if isinstance(name, str) else key


def _spellings(value: str) -> set[str]:
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
    """What of the value's base64 is the same wherever in a longer text it was encoded."""
    found: set[str] = set()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode()
        core = encoded[4 if shift else 0 : len(encoded) - (4 if (shift + len(raw)) % 3 else 0)]
        if len(core) >= 8:
            found |= {core, core.replace("+", "-").replace("/", "_")}
    return found
