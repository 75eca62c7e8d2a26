"""The host's side: a token for every request."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.token.claims import ISSUER, LIFETIME, Claims, digest_of, to_payload
from holdfast.token.compact import TOKEN_BYTES, header_of, joined, to_sign
from holdfast.token.keyfile import KeyFile, Stamp
from holdfast.token.keys import Key, made, public_jwks, rotated

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The keys as they were under a stamp of their file, the first one ready to sign."""

    stamp: Stamp
    keys: tuple[Key, ...]
    private: "Ed25519PrivateKey"
    header: bytes


class Signer:
    """Signs with the newest key in a folder; makes the first one, and notices when another process rotates it."""

    def __init__(
        self,
        folder: Path,
        *,
        issuer: str = ISSUER,
        lifetime: int = LIFETIME,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 1 <= lifetime <= LIFETIME:
            raise ValueError(f"A token lives 1 to {LIFETIME} seconds, not {lifetime}.")
        self._file = KeyFile(folder, clock)
        self._issuer = issuer
        self._lifetime = lifetime
        self._clock = clock
        self._loaded: _Loaded | None = None

    @property
    def public_file(self) -> Path:
        """The public key set on disk, for verifiers on the same machine."""
        return self._file.public

    def sign(self, context: SessionContext, audience: str, request: bytes | None = None) -> str:
        """A token for one request to one server; `request` is the body that it goes with, as it is sent.

        Every request is signed anew: the host cannot know which tools change something, and such a tool takes
        neither a token twice nor one that was signed for another request.
        """
        loaded = self._current()
        now = int(self._clock())
        claims = Claims(
            context=context,
            issuer=self._issuer,
            audience=audience,
            issued_at=now,
            expires_at=now + self._lifetime,
            token_id=secrets.token_urlsafe(16),
            request=None if request is None else digest_of(request),
        )
        signed = to_sign(loaded.header, to_payload(claims))
        token = joined(signed, loaded.private.sign(signed))
        if len(token) > TOKEN_BYTES:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"The context makes a token of {len(token)} bytes; {TOKEN_BYTES} is the most. Shorten the user id.",
            )
        return token

    def jwks(self) -> JsonObject:
        """The public key set, for verifiers elsewhere."""
        return public_jwks(self._current().keys, self._clock())

    def rotate(self, *, revoke: bool = False) -> None:
        """Sign with a new key from now on, in every process; `revoke` drops the old ones at once, for one that leaked.

        Without it they verify until the last token they signed has expired.
        """
        self._file.change(lambda keys: rotated(() if revoke else keys, made(), self._clock()))

    def _current(self) -> _Loaded:
        loaded = self._loaded
        if loaded is None or loaded.stamp != self._file.stamp():
            self._loaded = loaded = self._load()
        return loaded

    def _load(self) -> _Loaded:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        keys, stamp = self._file.read()
        assert keys[0].secret is not None
        private = Ed25519PrivateKey.from_private_bytes(keys[0].secret)
        return _Loaded(stamp, keys, private, header_of(keys[0].key_id))
