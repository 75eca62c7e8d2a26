"""Verifies the context tokens that a server receives."""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.untrusted_file import read_untrusted_file
from holdfast.token.claims import ISSUER, MAX_LIFETIME, Claims, digest_request, from_payload
from holdfast.token.jws import parse_token, token_error
from holdfast.token.signing_keys import Key, read_public

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

LEEWAY = 5.0
"""By how many seconds the clocks of the host and the server may differ."""
_MAX_LEEWAY = 30.0
_MAX_FILE_BYTES = 1024 * 1024  # a larger key set is refused


class Verifier:
    """Verifies tokens with the host's public key set: a dict, JSON text, or a file, which is reloaded when it changes."""

    def __init__(
        self,
        jwks: Mapping[str, object] | str | bytes | Path,
        *,
        issuer: str = ISSUER,
        leeway: float = LEEWAY,
    ) -> None:
        if not 0 <= leeway <= _MAX_LEEWAY:
            raise ValueError(f"leeway must be 0 to {_MAX_LEEWAY:.0f} seconds, not {leeway}.")
        self._issuer = issuer
        self._leeway = leeway
        self._file = jwks if isinstance(jwks, Path) else None
        self._file_version: tuple[int, ...] | None = None
        self._keys: dict[str, Key] = {}
        self._ed25519_keys: dict[str, Ed25519PublicKey] = {}
        """The keys in the form that verifies signatures, by id. Each is made when it is first needed."""
        if isinstance(jwks, Path):
            self._reload(jwks)
        else:
            self.replace(jwks)

    def replace(self, jwks: Mapping[str, object] | str | bytes) -> None:
        """Accept only these keys from now on. Call this after you have fetched the key set again."""
        self._keys, self._ed25519_keys = read_public(jwks), {}

    def verify(
        self,
        token: str,
        audience: str | Collection[str],
        *,
        request: bytes | None = None,
        now: float | None = None,
    ) -> Claims:
        """The claims of a valid token. Raise BAD_TOKEN otherwise, with the reason in `details["reason"]`.

        `audience` is the normalized URL of this server (see `audience_of`), or several. `request` is the body as it was
        received; if it is given, the token must be signed for it. For every tool that changes something, pass `request`, and then pass
        the claims to `ReplayCache.check`.
        """
        now = time.time() if now is None else now
        claims = from_payload(self._verify_signature(token, now))
        self._check_times(claims, now)
        if claims.issuer != self._issuer:
            raise token_error("issuer", f"The token was not issued by {self._issuer!r}.")
        if claims.audience not in ({audience} if isinstance(audience, str) else audience):
            raise token_error(
                "audience", f"The token is for another server, not for {_list_audiences(audience)}."
            )
        if request is not None:
            check_request(claims, request)
        return claims

    def _verify_signature(self, token: str, now: float) -> bytes:
        from cryptography.exceptions import InvalidSignature

        parsed = parse_token(token)
        key = self._find_key(parsed.key_id, now)
        try:
            self._ed25519_key(key).verify(parsed.signature, parsed.signing_input)
        except InvalidSignature:
            raise token_error("signature", "The token's signature is not valid.") from None
        return parsed.payload

    def _find_key(self, key_id: str, now: float) -> Key:
        if self._file is not None:
            self._reload(self._file)
        key = self._keys.get(key_id)
        if key is None or not key.is_valid(now):
            raise token_error(
                "unknown_key",
                "The token is signed with a key that is not in the key set, or that has expired.",
            )
        return key

    def _check_times(self, claims: Claims, now: float) -> None:
        if not 0 < claims.expires_at - claims.issued_at <= MAX_LIFETIME:
            raise token_error(
                "lifetime", f"The token's lifetime is not between 1 and {MAX_LIFETIME} seconds."
            )
        if claims.issued_at > now + self._leeway:
            raise token_error(
                "future", "The token is not valid yet. Compare the clocks of the host and this server."
            )
        if claims.expires_at + self._leeway <= now:
            raise token_error("expired", "The token has expired.")

    def _ed25519_key(self, key: Key) -> "Ed25519PublicKey":
        if (public_key := self._ed25519_keys.get(key.key_id)) is None:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

            self._ed25519_keys[key.key_id] = public_key = Ed25519PublicKey.from_public_bytes(key.public)
        return public_key

    def _reload(self, file: Path) -> None:
        try:
            status = file.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if version == self._file_version:
                return
            self.replace(read_untrusted_file(file, limit=_MAX_FILE_BYTES))
            self._file_version = version
        except OSError as error:
            raise HoldfastError(
                codes.BAD_KEY, f"The key set {str(file)!r} cannot be read: {error.strerror}."
            ) from None


def check_request(claims: Claims, request: bytes | None) -> None:
    """Raise BAD_TOKEN unless the token is signed for this body or, if it is None, for no body."""
    if claims.request_digest != (None if request is None else digest_request(request)):
        raise token_error("request", "The token is signed for another request, or for none.")


def _list_audiences(audience: str | Collection[str]) -> str:
    """The audiences without their queries, which may hold secrets."""
    audiences = {audience} if isinstance(audience, str) else audience
    return " or ".join(sorted({repr(name.partition("?")[0]) for name in audiences}))
