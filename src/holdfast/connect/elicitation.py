"""Sanitizes a server's question to the user: names the server, limits the size, removes invisible text, checks the URL."""

import ipaddress
import re
from urllib.parse import urlsplit

from holdfast.model import codes
from holdfast.model.blocked_addresses import why_host_blocked
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.normal_form import normalize
from holdfast.model.server import Http, ServerSpec, Sse
from holdfast.model.visible_text import strip_invisible, to_line
from holdfast.wire.messages import Raw
from holdfast.wire.strict_json import DECODE_ERRORS, is_nested_within, make_decoder

MAX_BYTES = 16 * 1024
MAX_FIELDS = 20
MAX_LINES = 30
# In characters:
MAX_MESSAGE = 2000
MAX_TEXT = 500
MAX_URL = 2000
_MAX_DEPTH = 8
_DISPLAYED_KEYWORDS = frozenset({"title", "description"})
"""Keywords that are only shown. The values of all other keywords, such as `enum`, are part of the answer."""
_KEYWORDS = _DISPLAYED_KEYWORDS | frozenset(
    (
        "type",
        "properties",
        "required",
        "enum",
        "enumNames",
        "oneOf",
        "anyOf",
        "const",
        "items",
        "default",
        "format",
    )
)
_FOLDED_KEYWORDS = frozenset(keyword.casefold() for keyword in _KEYWORDS)
_NOT_FOR_SECRETS = "Never enter a password, key or token in this form."
_SECRET_WORDS = re.compile(
    r"pass ?(?:wor[dt]|wd|phrase|code)|\bpwd\b|\b(?:api|access|private|secret|signing) ?keys?\b|\bsecrets?\b|\btokens?\b"
    r"|\bbearer\b|credentials?\b|\b(?:credit|debit) ?card|card number|\bcv[vc]2?\b|\bpin\b|\botp\b|\b2fa\b"
    r"|one time (?:code|pass)|(?:seed|recovery) (?:phrase|code)|contraseña|mot de passe|пароль|密码|密碼|パスワード"
)
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def sanitize_elicitation(spec: ServerSpec, params: Raw, *, is_restricted: bool) -> JsonObject:
    """The question to show, as MCP params. Raise BAD_ARGUMENT with the reason if it must not be shown.

    A restricted server may not ask the user to open local addresses.
    """
    question = _decode(params)
    message, mode = question.get("message"), question.get("mode", "form")
    if not isinstance(message, str) or len(message) > MAX_MESSAGE:
        raise _refused(f"message must be a string of at most {MAX_MESSAGE} characters")
    if len(message.splitlines()) > MAX_LINES:  # more would scroll away who asks
        raise _refused(f"message must have at most {MAX_LINES} lines")
    server = _describe_server(spec)
    quoted = "\n".join(f"| {to_line(line)}" for line in strip_invisible(message).split("\n"))
    match mode:
        case "form":
            schema = _sanitize_schema(question.get("requestedSchema"))
            shown = f"A question from {server}, not from Holdfast:\n{quoted}\n{_NOT_FOR_SECRETS}"
            return {"mode": "form", "message": shown, "requestedSchema": schema}
        case "url":
            url, host = _check_url(question.get("url"), is_restricted=is_restricted)
            more: JsonObject = {}
            if "elicitationId" in question:  # only in the handshake era
                more["elicitationId"] = _check_value(question["elicitationId"], "elicitationId")
            shown = f"A request from {server}, not from Holdfast, to open a page on {host}:\n{quoted}"
            return {"mode": "url", "message": shown, "url": url, **more}
        case _:
            raise _refused('mode must be "form" or "url"')


def _decode(params: Raw) -> JsonObject:
    if len(params) > MAX_BYTES:
        raise _refused(f"it has {len(params)} bytes; the maximum is {MAX_BYTES}")
    if not is_nested_within(bytes(params), _MAX_DEPTH):
        raise _refused("it is nested too deeply")
    try:
        return make_decoder(dict[str, Json])(params)
    except DECODE_ERRORS:
        raise _refused("its params are not a JSON object") from None


def _describe_server(spec: ServerSpec) -> str:
    kind = (
        "remote "
        if isinstance(spec.transport, Http | Sse)
        else "confined "
        if spec.confinement is not None
        else ""
    )
    return f"the {kind}MCP server {to_line(spec.name)[:80]!r}"


def _sanitize_schema(schema: Json) -> JsonObject:
    """The form's schema, with cleaned texts. Raise if the form must not be shown."""
    match schema:
        case {"type": "object", "properties": dict(properties)}:
            pass
        case _:
            raise _refused('requestedSchema must have the type "object" and properties')
    if len(properties) > MAX_FIELDS:
        raise _refused(f"the form has {len(properties)} fields; the maximum is {MAX_FIELDS}")
    return {
        "type": "object",
        "properties": {
            _check_value(name, "the name of a field"): _sanitize_field(name, field)
            for name, field in properties.items()
        },
        **({"required": _sanitize_json(schema["required"])} if "required" in schema else {}),
    }


def _sanitize_field(name: str, field: Json) -> Json:
    """A field, with cleaned texts. Raise if it asks for a secret."""
    if not isinstance(field, dict):
        raise _refused(f"the field {name!r} is not an object")
    if not _is_choice(field):
        texts = (
            name,
            *(text for key in (*_DISPLAYED_KEYWORDS, "format") if isinstance(text := field.get(key), str)),
        )
        if any(map(_names_a_secret, texts)):
            raise _refused(
                f"the field {name!r} asks for a password or another secret, which MCP forbids in forms. "
                "Use an elicitation by URL"
            )
    return _sanitize_json(field)


def _is_choice(field: JsonObject) -> bool:
    """Whether the user chooses a value and cannot type a text. Without a type or choices, some clients show a text field."""
    match field:
        case {"type": "boolean"} | {"enum": [_, *_]} | {"oneOf": [_, *_]}:
            return True
        case {"type": "array", "items": {"enum": [_, *_]} | {"anyOf": [_, *_]} | {"oneOf": [_, *_]}}:
            return True
        case _:
            return False


def _sanitize_json(value: Json) -> Json:
    """Clean the texts that are only shown. Refuse invisible characters in values that are part of the answer."""
    match value:
        case str():
            return _check_value(value, "a value")
        case list():
            return [_sanitize_json(item) for item in value]
        case dict():
            return {
                _check_keyword(key): to_line(text)[:MAX_TEXT]
                if key in _DISPLAYED_KEYWORDS and isinstance(text, str)
                else _sanitize_json(text)
                for key, text in value.items()
            }
        case _:
            return value


def _check_keyword(key: str) -> str:
    """Refuse a word that differs from a keyword only in case, such as `Title`: some clients would show its text, which is not cleaned."""
    if key not in _KEYWORDS and key.casefold() in _FOLDED_KEYWORDS:
        raise _refused(f"the keyword {key!r} must be written in the same case as in MCP")
    return _check_value(key, "a keyword")


def _check_value(value: Json, what: str) -> str:
    """The value, if it is a short string on one line. Otherwise raise an error that names it as `what`."""
    if (
        not isinstance(value, str)
        or len(value) > MAX_TEXT
        or strip_invisible(value) != value
        or "\n" in value
    ):
        raise _refused(
            f"{what} must be a string of at most {MAX_TEXT} characters, without control or invisible characters"
        )
    return value


def _names_a_secret(text: str) -> bool:
    words = re.sub(r"[\W_]+", " ", normalize("NFKC", _CAMEL.sub(" ", strip_invisible(text))))
    return _SECRET_WORDS.search(words.lower()) is not None


def _check_url(value: Json, *, is_restricted: bool) -> tuple[str, str]:
    """The URL and its host. Raise unless it is https, or http to this machine from a server that is not restricted."""
    if not isinstance(value, str) or len(value) > MAX_URL:
        raise _refused(f"url must be a string of at most {MAX_URL} characters")
    if not value.isascii() or not value.isprintable() or " " in value or "\\" in value:
        raise _refused("url may only contain visible ASCII characters; percent-encode the others")
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname or "", parts.port  # reading the port checks it
    except ValueError:
        raise _refused("url is not a valid address") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and not is_restricted and _is_loopback(host)):
        raise _refused("url must begin with https://")
    if not _HOST.fullmatch(parts.netloc):
        raise _refused("url must have a plain host, and no user name or password")
    if is_restricted and (why := why_host_blocked(host)):
        raise _refused(f"url points to {why}, which this server may not open")
    return value, parts.netloc


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refused(reason: str) -> HoldfastError:
    return HoldfastError(codes.BAD_ARGUMENT, f"This question was not shown: {reason}.")
