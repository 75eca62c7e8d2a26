"""Mask likely secrets in a text: values after a secret name or flag, and words that look random. `urls.py` masks those in URLs."""

import re
from collections.abc import Iterator

from holdfast.masking import MASKED
from holdfast.masking.secret_names import is_secret_name
from holdfast.masking.secret_shapes import is_reference, looks_generated
from holdfast.masking.urls import mask_urls

# Texts may be hostile, so every pattern takes linear time.
_SCHEME = re.compile(r"(?i)\b((?:bearer|basic)\s{1,3})([a-z0-9._~+/=-]{8,})")
_ASSIGNMENT = re.compile(r"(?<![\w.-])([\w.-]++)(\\?[\"']?)(\s{0,3}[=:]\s{0,3})(?![=/])")
_VALUE = re.compile(
    r"\"(?P<double>(?:[^\"\\\n]|\\.)*+)|'(?P<single>(?:[^'\\\n]|\\.)*+)|\\[\"'](?P<escaped>[^\"'\\\n]*+)"
    r"|\{(?P<braced>[^\s{}\"']++)\}"  # in a connection string for ODBC
    r"|(?P<bare>[^\s\"',;&\\\[{][^\s\"',;&\\]*+)"
)
_HEADER_VALUE = re.compile(r"\\?[\"']?(?P<value>[^\"'\\\n]++)")
_HEADER_SCHEME = re.compile(r"(?i)(?:bearer|basic|digest|token|apikey)\s{1,3}")
_FLAG = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]*+)\s{1,3}(?!-)")
_LONG_WORD = re.compile(r"[^\s\"',;()<>=]{16,}")

_HEADERS_WITH_SPACES = ("authorization", "cookie")
_NOT_VALUES = {"true", "false", "null", "none", "True", "False", "None"}
# Words that may follow a flag in a sentence, and are not the flag's value: "--token is required".
_SENTENCE_WORDS = {
    "and",
    "argument",
    "as",
    "can",
    "cannot",
    "for",
    "has",
    "in",
    "is",
    "must",
    "need",
    "needs",
    "not",
    "option",
    "or",
    "requires",
    "to",
    "was",
    "with",
}


def mask_likely_secrets(text: str) -> str:
    """Mask likely secrets in a log line, an error or a listing. Names, flags and hosts stay readable."""
    text = _SCHEME.sub(lambda found: found[1] + MASKED, mask_urls(text))
    if "=" in text or ":" in text:
        text = _mask_after(_ASSIGNMENT, text)
    return _mask_after(_FLAG, text) if "-" in text else text


def mask_listing(text: str) -> str:
    """Mask likely secrets, and every word that looks random."""
    return _LONG_WORD.sub(
        lambda found: MASKED if looks_generated(found[0]) else found[0], mask_likely_secrets(text)
    )


def secrets_after_names(text: str) -> Iterator[str]:
    """The values after secret names and flags in a text, such as a connection string, JSON, or a command line."""
    for pattern in (_ASSIGNMENT, _FLAG):
        for begin, end, _ in _values_after(pattern, text):
            yield text[begin:end]


def _mask_after(pattern: re.Pattern[str], text: str) -> str:
    """Mask the value after each secret name or flag."""
    pieces: list[str] = []
    start = 0
    for begin, end, masked in _values_after(pattern, text):
        pieces += (text[start:begin], masked)
        start = end
    return "".join((*pieces, text[start:])) if pieces else text


def _values_after(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int, str]]:
    """The start and end of the value after each secret name or flag, and its replacement."""
    position = 0
    while (found := pattern.search(text, position)) is not None:
        position = found.end()
        if not is_secret_name(found[1]):
            continue
        span = _value_after_flag(found) if pattern is _FLAG else _value_after_name(found)
        if span is not None:
            yield span
            position = span[1]


def _value_after_name(found: re.Match[str]) -> tuple[int, int, str] | None:
    """The start and end of the value after `name=`, and its replacement; None if it needs no mask."""
    text, end = found.string, found.end()
    if found[1].lower().endswith(_HEADERS_WITH_SPACES) and ":" in found[3]:
        value = _HEADER_VALUE.match(text, end)
        if value is None:
            return None
        scheme = _HEADER_SCHEME.match(text, value.start("value"), value.end("value"))
        begin = value.start("value") if scheme is None else scheme.end()
        return _unless_harmless(text, begin, value.end("value"), MASKED)
    value = _VALUE.match(text, end)
    if value is None or value.lastgroup is None:
        return None
    begin, stop = value.span(value.lastgroup)
    if value.lastgroup != "bare":
        return _unless_harmless(text, begin, stop, MASKED)
    if not found[2]:
        return _unless_harmless(text, begin, stop, MASKED)
    # A number in JSON: quote the mask, so that the line stays valid JSON.
    stop = begin + len(re.split(r"[}\])]", text[begin:stop], maxsplit=1)[0])
    return _unless_harmless(text, begin, stop, f"{found[2]}{MASKED}{found[2]}")


def _value_after_flag(found: re.Match[str]) -> tuple[int, int, str] | None:
    """The start and end of the value after `--password `, and its replacement; None if it needs no mask."""
    value = _VALUE.match(found.string, found.end())
    if value is None or value.lastgroup is None:
        return None
    begin, stop = value.span(value.lastgroup)
    if found.string[begin:stop] in _SENTENCE_WORDS:
        return None
    return _unless_harmless(found.string, begin, stop, MASKED)


def _unless_harmless(text: str, begin: int, end: int, masked: str) -> tuple[int, int, str] | None:
    """The span and its replacement; None if the value there is no secret, such as `true` or `${TOKEN}`."""
    value = text[begin:end]
    is_placeholder = value.strip("-}.") == "…"  # in advice: "give a default: ${TOKEN:-…}."
    if not value or is_placeholder or value in _NOT_VALUES or value.startswith(MASKED) or is_reference(value):
        return None
    return begin, end, masked
