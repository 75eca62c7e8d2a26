"""Signs a token for each request that the host sends to a server over HTTP."""

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
from holdfast.token.claims import ISSUER, MAX_LIFETIME, Claims, digest_request, to_payload
from holdfast.token.jws import MAX_TOKEN_BYTES, encode_header, encode_signing_input, join_token
from holdfast.token.key_file import FileVersion, KeyFile
from holdfast.token.signing_keys import Key, generate_key, public_jwks, rotate_keys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class LoadedKeys:
    """The keys of one version of the key file. The first key signs: `private` is its private key, `header` the header of its tokens."""

    version: FileVersion
    keys: tuple[Key, ...]
    private: "Ed25519PrivateKey"
    header: bytes


class Signer:
    """Signs with the newest key in a folder, and notices when another process rotates the keys."""

    def __init__(
        self,
        folder: Path,
        *,
        issuer: str = ISSUER,
        lifetime: int = MAX_LIFETIME,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 1 <= lifetime <= MAX_LIFETIME:
            raise ValueError(f"lifetime must be 1 to {MAX_LIFETIME} seconds, not {lifetime}.")
        self._file = KeyFile(folder, clock)
        self._issuer = issuer
        self._lifetime = lifetime
        self._clock = clock
        self._loaded: LoadedKeys | None = None

    @property
    def public_file(self) -> Path:
        """The file with the public key set."""
        return self._file.public_file

    def sign(self, context: SessionContext, audience: str, request: bytes | None = None) -> str:
        """Sign a token for one request to one server. `request` is the body as it is sent."""
        loaded = self._current_keys()
        now = int(self._clock())
        claims = Claims(
            context=context,
            issuer=self._issuer,
            audience=audience,
            issued_at=now,
            expires_at=now + self._lifetime,
            token_id=secrets.token_urlsafe(16),
            request_digest=None if request is None else digest_request(request),
        )
        token = self._sign(loaded, to_payload(claims))
        if len(token) > MAX_TOKEN_BYTES:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"The token would have {len(token)} bytes, more than {MAX_TOKEN_BYTES}. Shorten the user id or the server's URL.",
            )
        return token

    def jwks(self) -> JsonObject:
        """The public key set, to give to verifiers."""
        return public_jwks(self._current_keys().keys, self._clock())

    def rotate(self, *, revoke: bool = False) -> None:
        """Sign with a new key from now on, in every process.

        The old keys verify until their last tokens have expired. After a leak, use `revoke` to remove them from the public key set
        at once. A verifier with a copy of the set accepts their tokens until its copy is replaced.
        """
        self._file.update(lambda keys: rotate_keys(() if revoke else keys, generate_key(), self._clock()))

    def _sign(self, loaded: LoadedKeys, payload: JsonObject) -> str:
        signing_input = encode_signing_input(loaded.header, payload)
        return join_token(signing_input, loaded.private.sign(signing_input))

    def _current_keys(self) -> LoadedKeys:
        loaded = self._loaded
        if loaded is None or loaded.version != self._file.version():
            self._loaded = loaded = self._load()
        return loaded

    def _load(self) -> LoadedKeys:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        keys, version = self._file.read()
        assert keys[0].secret is not None
        private = Ed25519PrivateKey.from_private_bytes(keys[0].secret)
        return LoadedKeys(version, keys, private, encode_header(keys[0].key_id))
