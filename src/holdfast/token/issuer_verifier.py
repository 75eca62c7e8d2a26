"""Verifies the access tokens (JWTs) that an OAuth authorization server issued for this server.

Call `prepare` first, which fetches the issuer's keys if necessary. Only algorithms with public keys are accepted.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from holdfast.model.json import Json, JsonObject
from holdfast.token.issuer_keys import IssuerKey, IssuerKeys
from holdfast.token.jws import MAX_TOKEN_BYTES, decode_base64url, parse_object, token_error

LEEWAY = 30.0
"""By how many seconds the issuer's clock may differ from the clock of this machine."""
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_MAX_SUBJECT = 256  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerClaims:
    """The claims of a verified token."""

    subject: str
    client_id: str
    expires_at: float
    scopes: frozenset[str]
    payload: JsonObject = field(repr=False)
    """All claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedJwt:
    algorithm: str
    key_id: str
    signed: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)


class IssuerVerifier:
    """Verifies the tokens of one issuer for one audience. `fetch` returns the issuer's key set."""

    def __init__(
        self,
        issuer: str,
        audience: str,
        fetch: Callable[[], Awaitable[bytes]],
        *,
        clock: Callable[[], float] = time.time,
        age_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is for the times in tokens, `age_clock` for the age of the issuer's keys."""
        self.issuer = issuer
        self.audience = audience
        self._clock = clock
        self._keys = IssuerKeys(fetch, age_clock)

    async def prepare(self, token: str) -> None:
        """Fetch the issuer's keys if they are old, or if the token's key is not among them.

        Raise BAD_KEY if they could not be fetched, and no earlier keys can be used. Raise BAD_TOKEN if the token cannot be parsed.
        """
        await self._keys.prepare(_parse(token).key_id)

    def verify(self, token: str) -> IssuerClaims:
        """The claims of a valid token. Raise BAD_TOKEN otherwise, with the reason in `details["reason"]`."""
        from cryptography.exceptions import InvalidSignature

        parsed = _parse(token)
        key = self._find_key(parsed)
        try:
            key.verify(parsed.algorithm, parsed.signed, parsed.signature)
        except (InvalidSignature, ValueError):
            raise token_error("signature", "The token's signature is not valid.") from None
        try:
            payload = parse_object(parsed.payload)
        except ValueError:
            raise token_error(
                "claims", "The token's claims are not a JSON object with unique names."
            ) from None
        return self._check_claims(payload)

    def _find_key(self, parsed: _ParsedJwt) -> IssuerKey:
        key = self._keys.find(parsed.key_id)
        if key is None:
            raise token_error(
                "unknown_key", "The token is signed with a key that is not in the issuer's key set."
            )
        if parsed.algorithm not in key.algorithms:
            raise token_error("algorithm", "The token's key may not be used with the token's algorithm.")
        return key

    def _check_claims(self, payload: JsonObject) -> IssuerClaims:
        now = self._clock()
        if payload.get("iss") != self.issuer:
            raise token_error("issuer", "The token was issued by another issuer.")
        audience = payload.get("aud")
        if self.audience not in (audience if isinstance(audience, list) else [audience]):
            raise token_error("audience", "The token is for another server.")
        expires_at = _read_time(payload, "exp")
        if expires_at is None:
            raise token_error("claims", "The token has no claim 'exp', the time at which it expires.")
        if now >= expires_at + LEEWAY:
            raise token_error("expired", "The token has expired.")
        if any(_is_later(_read_time(payload, name), now + LEEWAY) for name in ("nbf", "iat")):
            raise token_error("future", "The token is not valid yet.")
        subject, client = payload.get("sub"), payload.get("client_id", payload.get("azp", ""))
        if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_SUBJECT or not _is_text(subject):
            raise token_error(
                "claims", "The token has no subject, or one that is very long or not valid Unicode."
            )
        scope = payload.get("scope", "")
        return IssuerClaims(
            subject=subject,
            client_id=client if isinstance(client, str) and _is_text(client) else "",
            expires_at=expires_at,
            scopes=frozenset(scope.split()) if isinstance(scope, str) else frozenset(),
            payload=payload,
        )


def _parse(token: str) -> _ParsedJwt:
    if len(token) > MAX_TOKEN_BYTES:
        raise token_error("too_long", f"The token is longer than {MAX_TOKEN_BYTES} bytes.")
    try:
        signed, _, last = token.rpartition(".")
        first, middle = signed.split(".")
        header = parse_object(decode_base64url(first))
        payload, signature = decode_base64url(middle), decode_base64url(last)
    except ValueError:
        raise token_error("malformed", "The token is not a JWT.") from None
    algorithm, key_id, kind = header.get("alg"), header.get("kid", ""), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or not isinstance(key_id, str) or not isinstance(kind, str):
        raise token_error("malformed", "The token's header is not the header of a JWT.")
    if kind.lower() not in _TYPES or "crit" in header:
        raise token_error(
            "malformed", "The token's type, or an extension that it requires, is not supported."
        )
    return _ParsedJwt(
        algorithm=algorithm, key_id=key_id, signed=signed.encode(), payload=payload, signature=signature
    )


def _is_text(value: str) -> bool:
    """Whether a string can be stored: JSON can name half of a character (`\\ud800`)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_time(payload: JsonObject, name: str) -> float | None:
    """A claim with a time, in seconds since 1970; None if it is missing."""
    value: Json = payload.get(name)
    if value is None:
        return None
    # A float is exact only below 2**53.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise token_error("claims", f"The token's `{name}` is not a time.")
    return float(value)


def _is_later(moment: float | None, limit: float) -> bool:
    return moment is not None and moment > limit
