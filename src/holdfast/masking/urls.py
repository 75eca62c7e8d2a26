"""Mask the secrets in URLs: passwords, query values and parts of the path."""

import re
from collections.abc import Callable, Iterator

from holdfast.masking import MASKED
from holdfast.masking.secret_names import is_secret_name
from holdfast.masking.secret_shapes import is_reference, looks_generated

Replacer = Callable[[str], str]
"""Returns the replacement for a secret."""

# Texts may be hostile, so every pattern takes linear time.
_URL = re.compile(r"://[^\s\"'<>`\\]++")
_PARAMETER = re.compile(r"[^&;]++")
_BETWEEN_WORDS = re.compile(r"[\s\"']+")
# `user:password@host`, `user:password@tcp(host)/database`. Addresses of packages have the same form: `npm:name@latest`, `image:tag@sha256:0a`.
_LOGIN = re.compile(
    r"(?:[\w.-]++=)?+(?!(?:acct|bitbucket|cargo|docker|file|gem|git|github|gitlab|jdbc|jsr|link|mailto|npm|oci|patch|pkg|portal|pypi|sips?|workspace|xmpp):)"
    r"[^:/@=]++:(?!\\)(?:([^/]+)@(?!sha\d+:)(?:[A-Za-z\[]|\d+\.\d+\.\d+\.\d)|(.+)@(?:tcp|unix)\()"
)
_ORACLE_LOGIN = re.compile(r"\w++:[^/@]*+/(.+)@")
_HOOKS = {"hook", "hooks", "webhook", "webhooks"}  # in a path, all that follows is masked: `/hooks/T0/B1`


def mask_urls(text: str) -> str:
    """Mask the passwords, all query values, and the likely secrets in the paths of the URLs of a text."""
    if "://" not in text:
        return text
    return _URL.sub(lambda found: "://" + _replace_in_url(found[0][3:], _mask, every_query_value=True), text)


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


def passwords_before_hosts(text: str) -> Iterator[str]:
    """The passwords in a value of the configuration that are before a host, as in a URL, but without its scheme: `user:password@host`."""
    for word in _BETWEEN_WORDS.split(text) if "@" in text else ():
        _, is_oracle, rest = word.partition("jdbc:oracle:")
        found = _ORACLE_LOGIN.match(rest) if is_oracle else _LOGIN.match(word)
        if found is not None:
            yield found[found.lastindex or 0]


def _mask(value: str) -> str:
    return value if not value or value == MASKED or is_reference(value) else MASKED


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
