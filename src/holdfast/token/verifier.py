"""The tool author's side: whether a token is good, and what it says."""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token.claims import ISSUER, LIFETIME, Claims, digest_of, from_payload
from holdfast.token.compact import taken_apart
from holdfast.token.keys import Key, read_public
from holdfast.token.refusal import refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

LEEWAY = 5.0
_LONGEST_LEEWAY = 30.0


class Verifier:
    """Checks tokens with the host's public key set: a dict, JSON text, or a file that it watches."""

    def __init__(
        self,
        jwks: Mapping[str, object] | str | bytes | Path,
        *,
        issuer: str = ISSUER,
        leeway: float = LEEWAY,
    ) -> None:
        if not 0 <= leeway <= _LONGEST_LEEWAY:
            raise ValueError(f"The leeway is 0 to {_LONGEST_LEEWAY:.0f} seconds, not {leeway}.")
        self._issuer = issuer
        self._leeway = leeway
        self._file = jwks if isinstance(jwks, Path) else None
        self._stamp: tuple[int, ...] | None = None
        self._keys: dict[str, Key] = {}
        self._ready: dict[str, Ed25519PublicKey] = {}
        if isinstance(jwks, Path):
            self._watch(jwks)
        else:
            self.replace(jwks)

    def replace(self, jwks: Mapping[str, object] | str | bytes) -> None:
        """Believe these keys from now on, and no others: what a caller does after it fetched the set again."""
        self._keys, self._ready = read_public(jwks), {}

    def verify(
        self,
        token: str,
        audience: str | Collection[str],
        *,
        request: bytes | None = None,
        now: float | None = None,
    ) -> Claims:
        """What the host vouches for, or a refusal that says why (`details["reason"]`).

        `audience` is this server's own address (`audience_of`), or several. With `request`, the body as it was
        received, the token must have been signed for just that body: ask this for every tool that changes something,
        and let `Seen.once` look at the claims.
        """
        now = time.time() if now is None else now
        parts = taken_apart(token)
        self._check_signature(parts.key_id, parts.signature, parts.signed, now)
        claims = from_payload(parts.payload)
        self._check_times(claims, now)
        if claims.issuer != self._issuer:
            raise refused("issuer", f"The token was not issued by {self._issuer!r}.")
        if claims.audience not in ({audience} if isinstance(audience, str) else audience):
            raise refused("audience", f"The token is for another server, not for {_several(audience)}.")
        if request is not None and claims.request != digest_of(request):
            raise refused("request", "The token was signed for another request, or for none.")
        return claims

    def _check_signature(self, key_id: str, signature: bytes, signed: bytes, now: float) -> None:
        from cryptography.exceptions import InvalidSignature

        if self._file is not None:
            self._watch(self._file)
        key = self._keys.get(key_id)
        if key is None or not key.holds(now):
            raise refused(
                "unknown_key", "The token is signed with a key that is not in the key set, or no more."
            )
        try:
            self._public(key).verify(signature, signed)
        except InvalidSignature:
            raise refused("signature", "The token's signature does not fit.") from None

    def _check_times(self, claims: Claims, now: float) -> None:
        if not 0 < claims.expires_at - claims.issued_at <= LIFETIME:
            raise refused("lifetime", f"The token would live longer than {LIFETIME} seconds, or not at all.")
        if claims.issued_at > now + self._leeway:
            raise refused(
                "future", "The token is not valid yet. Compare the clocks of the host and this server."
            )
        if claims.expires_at + self._leeway <= now:
            raise refused("expired", "The token has expired.")

    def _public(self, key: Key) -> "Ed25519PublicKey":
        if (ready := self._ready.get(key.key_id)) is None:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

            self._ready[key.key_id] = ready = Ed25519PublicKey.from_public_bytes(key.public)
        return ready

    def _watch(self, file: Path) -> None:
        """Read the key set when the file is another than before."""
        try:
            found = file.stat()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp == self._stamp:
                return
            self.replace(file.read_bytes())
            self._stamp = stamp
        except OSError as error:
            raise HoldfastError(
                codes.BAD_KEY, f"The key set {str(file)!r} cannot be read: {error.strerror}."
            ) from None


def _several(audience: str | Collection[str]) -> str:
    return repr(audience) if isinstance(audience, str) else " or ".join(map(repr, audience))
