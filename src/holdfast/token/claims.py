"""What a token says: whose session is calling which server, from when until when."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import parse_session_id
from holdfast.model.json import Json, JsonObject
from holdfast.model.trust import Trust
from holdfast.model.workspace import parse_slug
from holdfast.token.compact import read_object, text_of
from holdfast.token.refusal import refused

ISSUER = "holdfast"
LIFETIME = 60
"""Seconds that a token may live, at most."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What the host vouches for. The context has no paths: they mean nothing on another machine."""

    context: SessionContext
    issuer: str
    audience: str
    issued_at: int
    expires_at: int
    token_id: str
    request: str | None = None
    """The digest of the one request this token is for."""


def digest_of(request: bytes) -> str:
    """The digest of a request's body, as it is sent."""
    return text_of(hashlib.sha256(request).digest())


def to_payload(claims: Claims) -> JsonObject:
    """The claims by their short names."""
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
    optional = {"uid": context.user_id, "par": context.parent_session_id, "req": claims.request}
    return payload | {name: value for name, value in optional.items() if value is not None}


def from_payload(payload: bytes) -> Claims:
    """The claims of a payload whose signature is good; each must be there and make sense."""
    try:
        said = read_object(payload)
    except ValueError:
        raise refused("malformed", "The token's payload is not a JSON object with every name once.") from None
    if "nbf" in said:
        raise refused("claims", "The token has a claim that a context token does not have: 'nbf'.")
    return Claims(
        context=SessionContext(
            session_id=_read(said, "sub", lambda value: parse_session_id(_text(value))),
            workspace_id=_read(said, "ws", _workspace),
            trust_level=_read(said, "tl", lambda value: Trust(_text(value))),
            user_id=_read(said, "uid", _text) if "uid" in said else None,
            parent_session_id=_read(said, "par", lambda value: parse_session_id(_text(value)))
            if "par" in said
            else None,
        ),
        issuer=_read(said, "iss", _text),
        audience=_read(said, "aud", _text),
        issued_at=_read(said, "iat", _seconds),
        expires_at=_read(said, "exp", _seconds),
        token_id=_read(said, "jti", _token_id),
        request=_read(said, "req", _text) if "req" in said else None,
    )


def _read(said: JsonObject, name: str, read: Callable[[Json], T]) -> T:
    if name not in said:
        raise refused("claims", f"The token lacks the claim {name!r}.")
    try:
        return read(said[name])
    except (ValueError, HoldfastError):
        raise refused("claims", f"The token's claim {name!r} is not what it must be.") from None


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("not text")
    return value


def _workspace(value: Json) -> str:
    text = _text(value)
    return parse_slug(text) if text else ""


def _seconds(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("not whole seconds")
    return value


def _token_id(value: Json) -> str:
    text = _text(value)
    if not 16 <= len(text) <= 128:
        raise ValueError("too short to be unique, or too long to remember")
    return text
