"""Mask likely secrets in a text: values after a secret name or flag, parts of URLs, and words that look random."""

import re
from collections.abc import Callable, Iterator

from holdfast.masking.secret_names import is_secret_name
from holdfast.masking.secret_shapes import looks_generated

MASKED = "[masked]"

Replacer = Callable[[str], str]
"""Returns the replacement for a secret."""

# Texts may be hostile, so every pattern takes linear time.
_SCHEME = re.compile(r"(?i)\b((?:bearer|basic)\s{1,3})([a-z0-9._~+/=-]{8,})")
_ASSIGNMENT = re.compile(r"(?<![\w.-])([\w.-]++)(\\?[\"']?)(\s{0,3}[=:]\s{0,3})(?![=/])")
_VALUE = re.compile(
    r"\"(?P<double>(?:[^\"\\\n]|\\.)*+)|'(?P<single>(?:[^'\\\n]|\\.)*+)|\\[\"'](?P<escaped>[^\"'\\\n]*+)"
    r"|(?P<bare>[^\s\"',;&\\\[{][^\s\"',;&\\]*+)"
)
_HEADER_VALUE = re.compile(r"\\?[\"']?(?P<value>[^\"'\\\n]++)")
_HEADER_SCHEME = re.compile(r"(?i)(?:bearer|basic|digest|token|apikey)\s{1,3}")
_FLAG = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]*+)\s{1,3}(?!-)")
_URL = re.compile(r"://[^\s\"'<>`\\]++")
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*\}")
_PARAMETER = re.compile(r"[^&;]++")
_LONG_WORD = re.compile(r"[^\s\"',;()<>=]{16,}")

_HEADERS_WITH_SPACES = ("authorization", "cookie")
_NOT_VALUES = {"true", "false", "null", "none", "True", "False", "None"}
# A word after a flag that is not its value: "--token is required".
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
_HOOKS = {"hook", "hooks", "webhook", "webhooks"}  # in a path, all that follows is masked: `/hooks/T0/B1`


def mask_likely_secrets(text: str) -> str:
    """Mask likely secrets in a log line, an error or a listing. Names, flags and hosts stay readable."""
    if "://" in text:
        text = _URL.sub(_mask_url_match, text)
    text = _SCHEME.sub(lambda found: found[1] + MASKED, text)
    if "=" in text or ":" in text:
        text = _mask_after(_ASSIGNMENT, text)
    return _mask_after(_FLAG, text) if "-" in text else text


def mask_listing(text: str) -> str:
    """Mask likely secrets, and every word that looks random."""
    return _LONG_WORD.sub(
        lambda found: MASKED if looks_generated(found[0]) else found[0], mask_likely_secrets(text)
    )


def mask_url_passwords(text: str) -> str:
    """Mask the passwords in the URLs of a text."""
    if "://" not in text:
        return text
    return _URL.sub(lambda found: "://" + _replace_in_userinfo(found[0][3:], _mask), text)


def secrets_in_urls(text: str) -> Iterator[str]:
    """The secrets in the URLs of a value of the configuration: passwords, query values and parts of the path."""
    for url in _URL.findall(text) if "://" in text else ():
        secrets: list[str] = []

        def collect(secret: str, secrets: list[str] = secrets) -> str:
            secrets.append(secret)
            return secret

        _replace_in_url(url[3:], collect, every_query_value=False)
        yield from secrets


def is_reference(value: str) -> bool:
    """Whether a value is only a reference to a variable, such as `${TOKEN}`."""
    return _REFERENCE.fullmatch(value) is not None


def _mask(value: str) -> str:
    return value if not value or value == MASKED or is_reference(value) else MASKED


def _mask_url_match(found: re.Match[str]) -> str:
    return "://" + _replace_in_url(found[0][3:], _mask, every_query_value=True)


def _replace_in_url(rest: str, replace: Replacer, *, every_query_value: bool) -> str:
    """Replace the secrets in a URL without its scheme: in its userinfo, path, query and fragment."""
    rest = _replace_in_userinfo(rest, replace)
    rest, hash_mark, fragment = rest.partition("#")
    rest, question_mark, query = rest.partition("?")
    host, slash, path = rest.partition("/")
    return "".join(
        (
            host,
            slash,
            _replace_in_path(path, replace),
            question_mark,
            _replace_in_query(query, replace, every=every_query_value),
            hash_mark,
            _replace_in_query(fragment, replace, every=every_query_value),
        )
    )


def _replace_in_userinfo(rest: str, replace: Replacer) -> str:
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    end = authority.rfind("@")
    if end < 0:
        # A password may contain a slash: `user:pa/ss@host`. But `host:80/@name` has no password.
        _, colon, port = authority.rpartition(":")
        end = rest.rfind("@") if colon and not port.isdigit() and not port.endswith("]") else -1
        if end < 0:
            return rest
    user, colon, password = rest[:end].partition(":")
    if looks_generated(user) or (colon and not password):
        user = replace(user)
    return f"{user}{colon}{replace(password) if password else ''}{rest[end:]}"


def _replace_in_path(path: str, replace: Replacer) -> str:
    if not path:
        return path
    segments = path.split("/")
    after_hook = False
    for index, segment in enumerate(segments):
        if segment and (after_hook or looks_generated(segment)):
            segments[index] = replace(segment)
        after_hook = after_hook or segment.lower() in _HOOKS
    return "/".join(segments)


def _replace_in_query(query: str, replace: Replacer, *, every: bool) -> str:
    def replace_parameter(found: re.Match[str]) -> str:
        name, equals, value = found[0].partition("=")
        if not equals:
            return replace(name) if looks_generated(name) else name
        is_secret = every or is_secret_name(name) or name.lower() in {"key", "code"} or looks_generated(value)
        return f"{name}={replace(value)}" if value and is_secret else found[0]

    return _PARAMETER.sub(replace_parameter, query) if query else query


def _mask_after(pattern: re.Pattern[str], text: str) -> str:
    """Mask the value after each secret name or flag."""
    pieces: list[str] = []
    start = position = 0
    while (found := pattern.search(text, position)) is not None:
        position = found.end()
        if not is_secret_name(found[1]):
            continue
        span = _value_after_flag(found) if pattern is _FLAG else _value_after_name(found)
        if span is None:
            continue
        begin, end, masked = span
        pieces += (text[start:begin], masked)
        start = position = end
    return "".join((*pieces, text[start:])) if pieces else text


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
