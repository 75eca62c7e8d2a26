"""Find the secrets in server entries, environments, headers and command lines: by their name, their position, or because they look random."""

import re
from collections.abc import Iterator, Mapping, Sequence

from holdfast.masking import MASKED
from holdfast.masking.likely_secrets import mask_listing, secrets_after_names
from holdfast.masking.secret_names import is_secret_entry_name, is_secret_name, names_a_login, value_name
from holdfast.masking.secret_shapes import is_reference, looks_generated
from holdfast.masking.urls import passwords_before_hosts, secrets_in_urls
from holdfast.model.json import Json
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio

_REFERENCE = re.compile(r"\$\{(\w*+)(?::-([^}$]*+))?\}")
_BETWEEN_WORDS = re.compile(r"[;\s]+")
_USER_AND_PASSWORD = re.compile(r"[^\s:/@]++:(?!//)(\S++)")
_USER_SLASH_PASSWORD = re.compile(r"[^\s/@:]++/([^\s/]+)@\S++")
_USER_IN_URL = re.compile(r"://([^\s:/@]++)@")
_PWD = re.compile(
    r"(?<![\w.-])PWD\s*+=\s*+(?:\{([^{}]++)\}|([^\s;{}\"'/][^\s;]*+))"
)  # in a connection string, not a folder
_NETRC_PASSWORD = re.compile(r"\bpassword\s++(\S++)")
_PATH = re.compile(
    r"(?:\.{0,2}/|~/).*|.*\.(?:cer|crt|db|der|json|kdbx|key|p12|pem|pfx|pub|txt|ya?ml)", re.DOTALL
)
_HEADER_FLAGS = {"-H", "--header", "--headers"}
_USER_FLAGS = {"-u", "--user"}
_PASSWORD_FLAG = "-p"
_NOT_A_PASSWORD = re.compile(r"\d{1,5}(?:[:-]\d{1,5})*(?:/\w+)?|.*[/@].*|-.*")  # a port, a path or a package
_OPTION = re.compile(r"--.*|-.{0,2}", re.DOTALL)  # after a flag: the next option, so not the flag's value
_PROGRAMS_WITH_JOINED_PASSWORD = {"mysql", "mysqldump", "mysqladmin", "mariadb", "sshpass"}  # `-pPASSWORD`
_HARMLESS_HEADERS = {"accept", "accept-language", "content-type", "user-agent", "host", "origin"}
_AUTH_SCHEMES = {"bearer", "basic", "token", "digest", "apikey"}


def secrets_in_spec(spec: ServerSpec) -> tuple[str, ...]:
    """The secrets in a server's environment, arguments, headers and URL."""
    match spec.transport:
        case Stdio(command=command, env=env, args=args):
            return (*spec.secrets, *secrets_in_mapping(env), *secrets_in_arguments((command, *args)))
        case Http(headers=headers, url=url) | Sse(headers=headers, url=url):
            return (*spec.secrets, *secrets_in_mapping(headers), *secrets_in_urls(url))
        case InProcess():
            return ()


def secrets_in_json(value: Json) -> Iterator[str]:
    """The secrets in a server's entry, as it is written in the file.

    If a secret value contains a reference such as `${TOKEN}`, only the text around the reference is a secret.
    """
    match value:
        case dict():
            for key, inner in value.items():
                match inner:
                    case str():
                        yield from _literal_parts(secrets_in_mapping({value_name(key, value): inner}))
                    case int() | float() if not isinstance(inner, bool) and is_secret_name(
                        value_name(key, value)
                    ):
                        yield str(inner)
                    case list() if key == "args" and isinstance(value.get("command"), str):
                        # With the program, because it decides what `-pPASSWORD` means.
                        yield from secrets_in_json([value["command"], *inner])
                    case _:
                        yield from secrets_in_json(inner)
        case list():
            arguments = [inner for inner in value if isinstance(inner, str)]
            yield from _literal_parts(secrets_in_arguments(arguments))
            for inner in value:
                yield from secrets_in_json(inner)
        case _:
            pass


def secrets_in_mapping(entries: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets in environment variables or headers of a server: by name, in URLs, connection strings, JSON and command lines, and values that look random."""
    secrets = [*secrets_by_name(entries)]
    for variable, value in entries.items():
        secrets += _secrets_in_value(variable, value)
        for word in _BETWEEN_WORDS.split(value):
            name, equals, content = word.partition("=")
            if equals and is_secret_name(name):
                secrets.append(content)
            elif looks_generated(word):
                secrets.append(word)
            elif equals and looks_generated(content):
                secrets.append(content)
        secrets += _secrets_within(value)
    return tuple(dict.fromkeys(secrets))


def secrets_by_name(entries: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables or headers with a secret name, and the secrets in URLs. `Bearer abc` gives both `Bearer abc` and `abc`."""
    secrets: list[str] = []
    for name, value in entries.items():
        if is_secret_name(name):
            secrets += _with_and_without_scheme(value)
        secrets += secrets_in_urls(value)
    return tuple(secrets)


def secrets_in_arguments(args: Sequence[str]) -> Iterator[str]:
    """The secrets in a command line: after secret names and flags, in URLs and headers, and words that look random."""
    for word, previous in _with_previous(args):
        yield from _secrets_in_argument(word, previous, args[0])


def mask_command(args: Sequence[str]) -> tuple[str, ...]:
    """Mask the secrets in a command line. The program, the options and references such as `${TOKEN}` stay readable."""
    return tuple(_mask_argument(word, previous, args[0]) for word, previous in _with_previous(args))


def _with_previous(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each argument, with the one before it; the first with an empty string."""
    return zip(args, ("", *args), strict=False)


def _mask_argument(word: str, previous: str, program: str) -> str:
    for secret in sorted(_secrets_in_argument(word, previous, program), key=len, reverse=True):
        has_scheme = secret.partition(" ")[0].lower() in _AUTH_SCHEMES
        # `Bearer abc` is skipped: `abc` is also found, and then the scheme stays readable.
        if secret and not has_scheme and any(_literal_parts([secret])):
            word = MASKED.join(word.rsplit(secret, 1))
    return mask_listing(word)


def _secrets_in_argument(word: str, previous: str, program: str) -> Iterator[str]:
    """The secrets in one argument. `previous` is the argument before it."""
    yield from secrets_in_urls(word)
    name, equals, value = word.partition("=")
    yield from _secrets_after_flag(previous, word)
    if equals and is_secret_name(name):
        yield value
    elif equals and (name.startswith("-") or name.isupper()):
        yield from _secrets_in_value(name, value)
    elif word.startswith(_PASSWORD_FLAG) and program.rpartition("/")[2] in _PROGRAMS_WITH_JOINED_PASSWORD:
        yield word.removeprefix(_PASSWORD_FLAG)
    elif looks_generated(value or word):
        yield value or word
    elif (colon := word.find(": ")) > 0 and is_secret_name(word[:colon]):
        yield from _with_and_without_scheme(word[colon + 2 :].strip())
    yield from _secrets_within(word)


def _secrets_after_flag(flag: str, word: str) -> Iterator[str]:
    """The secrets in the argument after a flag or a name, such as `-H`, `--password` or `password:`."""
    if flag in _HEADER_FLAGS:
        header, colon, content = word.partition(":")
        if colon and header.strip().lower() not in _HARMLESS_HEADERS:
            yield from _with_and_without_scheme(content.strip())
    elif flag in _USER_FLAGS:
        yield word.partition(":")[2]
    elif flag == _PASSWORD_FLAG:
        if not _NOT_A_PASSWORD.fullmatch(word):
            yield word
    elif "=" in flag or _OPTION.fullmatch(word):
        return
    elif flag.startswith("-"):
        if is_secret_name(flag):
            yield word
        yield from _secrets_in_value(flag, word)
    elif (flag.endswith(":") or (flag.isupper() and flag.isidentifier())) and is_secret_name(flag):
        yield word


def _secrets_in_value(name: str, value: str) -> Iterator[str]:
    """The secrets in the value of a variable, a header or an option: because of its name, if `is_secret_name` does not know it, or because it is a login."""
    if is_secret_entry_name(name):
        if not is_secret_name(name) and not _is_harmless(name, value):
            yield from _with_and_without_scheme(value)
        if (login := _USER_AND_PASSWORD.fullmatch(value)) is not None:
            yield login[1]
        elif name.lower().endswith("dsn"):
            yield from _USER_IN_URL.findall(value)
    if names_a_login(name) and (login := _USER_SLASH_PASSWORD.fullmatch(value)) is not None:
        yield login[1]


def _secrets_within(value: str) -> Iterator[str]:
    """The secrets in a value that is a connection string, JSON, YAML, a command line or the like."""
    # A reference is no value: `${TOKEN:-default}` is not a name with a value.
    for secret in secrets_after_names(_REFERENCE.sub("\0", value)):
        yield from secret.split("\0")
    yield from passwords_before_hosts(value)
    yield from (braced or bare for braced, bare in _PWD.findall(value))
    if "machine" in value and "login" in value:  # as in a file .netrc
        yield from _NETRC_PASSWORD.findall(value)
    words = value.split() if "-u" in value and "-p" in value else ()
    if any(word.startswith("-u") for word in words):  # as for `mysql`
        yield from (word[2:] for word in words if word.startswith(_PASSWORD_FLAG))


def _is_harmless(name: str, value: str) -> bool:
    """Whether a value under a name such as `KEY`, `SEED` or `DSN` is a path, the number of a random generator, or an address with its own secrets."""
    if name.lower().endswith("dsn") and any(sign in value for sign in ("://", "@", "=")):
        return True
    is_path = _PATH.fullmatch(value) is not None and not looks_generated(value.lstrip("./~"))
    return is_path or (name.lower().endswith("seed") and value.isdigit())


def _with_and_without_scheme(value: str) -> Iterator[str]:
    """The value, and for `Bearer abc` also `abc`."""
    if not value:
        return
    yield value
    scheme, _, rest = value.partition(" ")
    if rest and scheme.lower() in _AUTH_SCHEMES:
        yield rest.strip()


def _literal_parts(secrets: Sequence[str] | Iterator[str]) -> Iterator[str]:
    """The parts of each secret outside of `${NAME}` references, and the defaults in `${NAME:-default}`."""
    for secret in secrets:
        if "${" not in secret:
            yield secret
        elif not is_reference(secret):
            yield from (reference[2] for reference in _REFERENCE.finditer(secret) if reference[2])
            for part in _REFERENCE.sub("\0", secret).split("\0"):
                scheme, _, rest = part.partition(" ")
                yield rest.strip() if scheme.lower() in _AUTH_SCHEMES else part
