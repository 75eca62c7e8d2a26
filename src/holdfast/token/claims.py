"""The claims of a token: which session calls which server, and until when."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import parse_session_id
from holdfast.model.json import Json, JsonObject
from holdfast.model.slug import parse_slug
from holdfast.model.trust import Trust
from holdfast.token.jws import encode_base64url, parse_object, token_error

ISSUER = "holdfast"
MAX_LIFETIME = 60
"""The maximum and default lifetime of a token, in seconds."""

_DEFAULT_PORTS = {"http": 80, "https": 443}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of a token. They do not include the context's paths, which mean nothing on another machine."""

    context: SessionContext
    issuer: str
    audience: str
    issued_at: int
    expires_at: int
    token_id: str
    request_digest: str | None = None
    """The digest of the request body that the token is signed for; None if it is signed for no body."""


def audience_of(url: str) -> str:
    """The audience of the server at this URL: scheme, host, port unless it is the default, path, and query if any.

    The server's name in a config would not be safe: the author of a config could give another server the same name.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url.strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
        parts = urlsplit("")
    if scheme not in _DEFAULT_PORTS or not host:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{url[:100]!r} is not an http or https URL.")
    host = f"[{host}]" if ":" in host else host.rstrip(".")
    netloc = host if port in (None, _DEFAULT_PORTS[scheme]) else f"{host}:{port}"
    return add_query(f"{scheme}://{netloc}{parts.path.rstrip('/')}", parts.query)


def add_query(audience: str, query: str) -> str:
    """Add a query to an audience. Equivalent spellings of the query give the same audience."""
    from urllib.parse import parse_qsl, urlencode

    fields = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
    return f"{audience}?{urlencode(fields, errors='surrogateescape')}" if fields else audience


def digest_request(body: bytes) -> str:
    """The SHA-256 of a request's body, as base64url."""
    return encode_base64url(hashlib.sha256(body).digest())


def to_payload(claims: Claims) -> JsonObject:
    """Encode the claims as the payload of a token."""
    context = claims.context
    payload: JsonObject = {
        "iss": claims.issuer,
        "aud": claims.audience,
        "sub": context.session_id,
        "ws": context.workspace_id,
        "tl": context.trust_level.value,
        "iat": claims.issued_at,
        "exp": claims.expires_at,
        "jti": claims.token_id,
    }
    optional = {"uid": context.user_id, "par": context.parent_session_id, "req": claims.request_digest}
    return payload | {name: value for name, value in optional.items() if value is not None}


def from_payload(payload: bytes) -> Claims:
    """Read the claims from a payload. Raise BAD_TOKEN if a claim is missing or invalid. The signature must be verified before."""
    try:
        fields = parse_object(payload)
    except ValueError:
        raise token_error(
            "malformed", "The token's payload is not a JSON object with unique names."
        ) from None
    if "nbf" in fields:
        raise token_error("claims", "The token has the claim 'nbf', which a context token must not have.")
    return Claims(
        context=SessionContext(
            session_id=_read_claim(fields, "sub", lambda value: parse_session_id(_parse_text(value))),
            workspace_id=_read_claim(fields, "ws", _parse_workspace),
            trust_level=_read_claim(fields, "tl", lambda value: Trust(_parse_text(value))),
            user_id=_read_claim(fields, "uid", _parse_text) if "uid" in fields else None,
            parent_session_id=_read_claim(fields, "par", lambda value: parse_session_id(_parse_text(value)))
            if "par" in fields
            else None,
        ),
        issuer=_read_claim(fields, "iss", _parse_text),
        audience=_read_claim(fields, "aud", _parse_text),
        issued_at=_read_claim(fields, "iat", _parse_seconds),
        expires_at=_read_claim(fields, "exp", _parse_seconds),
        token_id=_read_claim(fields, "jti", _parse_token_id),
        request_digest=_read_claim(fields, "req", _parse_text) if "req" in fields else None,
    )


def _read_claim(fields: JsonObject, name: str, parse: Callable[[Json], T]) -> T:
    if name not in fields:
        raise token_error("claims", f"The token has no claim {name!r}.")
    try:
        return parse(fields[name])
    except (ValueError, HoldfastError):
        raise token_error("claims", f"The token's claim {name!r} is not valid.") from None


def _parse_text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("not text")
    return value


def _parse_workspace(value: Json) -> str:
    text = _parse_text(value)
    return parse_slug(text) if text else ""


def _parse_seconds(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("not whole seconds")
    return value


def _parse_token_id(value: Json) -> str:
    text = _parse_text(value)
    if not 16 <= len(text) <= 128:
        raise ValueError("too short to be unique, or too long to store")
    return text
