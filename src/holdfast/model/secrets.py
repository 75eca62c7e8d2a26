"""Which values are secrets: those under names such as `API_KEY`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from holdfast.model.json import Json
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = {
    "apikey", "auth", "authorization", "cookie", "cookies", "credential", "credentials", "passphrase", "passwd",
    "password", "pwd", "secret", "secrets", "signature", "token",
}  # fmt: skip
_SECRET_PAIRS = {("access", "key"), ("api", "key"), ("private", "key"), ("pass", "word"), ("pass", "phrase")}
_HARMLESS_PAIRS = {("progress", "token"), ("page", "token")}
_FOLDERS = {"PWD", "OLDPWD"}  # the current folder, not a password


def secrets_in_spec(spec: ServerSpec) -> tuple[str, ...]:
    """The secrets of a server: in its environment, arguments and headers."""
    match spec.transport:
        case Stdio(env=env, args=args):
            return (*spec.secrets, *secrets_in_mapping(env), *_secrets_in_arguments(args))
        case Http(headers=headers) | Sse(headers=headers):
            return (*spec.secrets, *secrets_in_mapping(headers))
        case InProcess():
            return ()


def secrets_in_json(value: Json) -> Iterator[str]:
    """The secrets in a server's entry as written. A reference to a variable is not a secret."""
    match value:
        case dict():
            for key, inner in value.items():
                if not isinstance(inner, str):
                    yield from secrets_in_json(inner)
                elif not _has_reference(inner):
                    yield from secrets_in_mapping({value_name(key, value): inner})
        case list():
            arguments = [inner for inner in value if isinstance(inner, str)]
            yield from (given for given in _secrets_in_arguments(arguments) if not _has_reference(given))
            for inner in value:
                yield from secrets_in_json(inner)
        case _:
            pass


def secrets_in_mapping(entries: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets in an environment or in headers, with and without their scheme."""
    found: list[str] = []
    for name, value in entries.items():
        if is_secret_name(name) and value and name not in _FOLDERS:
            found.append(value)
            scheme, _, rest = value.partition(" ")
            if rest and scheme.lower() in {"bearer", "basic", "token"}:
                found.append(rest.strip())
    return tuple(found)


def is_secret_name(name: str) -> bool:
    """Whether a name indicates a secret: `API_KEY`, `x-auth-token`, `userPassword`."""
    words = [word.lower() for word in _WORD.findall(name)]
    pairs = set(pairwise(words))
    if pairs & _HARMLESS_PAIRS:
        return False
    return bool(_SECRET_WORDS.intersection(words) or pairs & _SECRET_PAIRS or "".join(words) in _SECRET_WORDS)


def is_secret_value(name: str, value: Json) -> bool:
    """Whether a value is a secret because of its name."""
    return value not in (None, "", False, True) and is_secret_name(name)


def value_name(key: str, entry: Mapping[str, Json]) -> str:
    """The name of a value: its key, or the `name` beside it in `{"name": …, "value": …}`."""
    name = entry.get("name") if key == "value" else None
    return name if isinstance(name, str) else key


def _has_reference(value: str) -> bool:
    return "${" in value


def _secrets_in_arguments(args: Sequence[str]) -> Iterator[str]:
    """`--api-key=VALUE`, and `--api-key VALUE`."""
    for option, after in pairwise((*args, "")):
        name, given, value = option.partition("=")
        if name.startswith("-") and is_secret_name(name):
            yield value if given else after
