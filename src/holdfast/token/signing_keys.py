"""The host's signing keys, and their JSON Web Key Sets."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.token.claims import MAX_LIFETIME
from holdfast.token.jws import ALGORITHM, decode_base64url, encode_base64url, parse_object
from holdfast.token.replay_cache import EXPIRY_MARGIN

_KEY_TYPE = {"kty": "OKP", "crv": "Ed25519"}
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An Ed25519 key. Only the host's current key has a secret. An older key has an expiry, until which it verifies tokens."""

    key_id: str
    public: bytes
    secret: bytes | None = field(default=None, repr=False)
    expires_at: float | None = None

    def is_valid(self, now: float) -> bool:
        return self.expires_at is None or now < self.expires_at


def generate_key() -> Key:
    """Generate a key. Its id is derived from its public part."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    return Key(key_id=_key_id(public), public=public, secret=private.private_bytes_raw())


def rotate_keys(keys: tuple[Key, ...], new: Key, now: float) -> tuple[Key, ...]:
    """The keys after a rotation. The new key signs; the others verify until their last tokens have expired."""
    expires_at = now + MAX_LIFETIME + EXPIRY_MARGIN
    kept = (
        replace(key, secret=None, expires_at=key.expires_at or expires_at)
        for key in keys
        if key.is_valid(now)
    )
    return (new, *kept)


def public_jwks(keys: tuple[Key, ...], now: float) -> JsonObject:
    """The public key set for verifiers: all keys that have not expired."""
    return {"keys": [_public_jwk(key) for key in keys if key.is_valid(now)]}


def private_jwks(keys: tuple[Key, ...]) -> JsonObject:
    """The key set for the key file, with secrets."""
    return {
        "keys": [
            {**_public_jwk(key), **({"d": encode_base64url(key.secret)} if key.secret else {})}
            for key in keys
        ]
    }


def read_private(text: bytes) -> tuple[Key, ...]:
    """Read the keys of a key file. The first key signs."""
    keys = _parse_jwks(text)
    if not keys or keys[0].secret is None:
        raise _bad_key_set("It has no key to sign with.")
    return keys


def read_public(jwks: bytes | str | Mapping[str, object]) -> dict[str, Key]:
    """Read the Ed25519 keys of a public key set, by id. Keys of other types are skipped."""
    text = json.dumps(jwks).encode() if isinstance(jwks, Mapping) else jwks
    keys = _parse_jwks(text.encode() if isinstance(text, str) else text)
    if any(key.secret is not None for key in keys):
        raise _bad_key_set(
            "It contains a secret key. Give verifiers only the public key set, and rotate the key."
        )
    by_id = {key.key_id: key for key in keys}
    if len(by_id) != len(keys):
        raise _bad_key_set("Two of its keys have the same id.")
    if not by_id:
        raise _bad_key_set("It has no Ed25519 key.")
    return by_id


def _public_jwk(key: Key) -> JsonObject:
    expiry: JsonObject = {} if key.expires_at is None else {"exp": key.expires_at}
    return {
        **_KEY_TYPE,
        "use": "sig",
        "alg": ALGORITHM,
        "kid": key.key_id,
        "x": encode_base64url(key.public),
        **expiry,
    }


def _parse_jwks(text: bytes) -> tuple[Key, ...]:
    try:
        listed = parse_object(text).get("keys")
        if not isinstance(listed, list):
            raise ValueError('"keys" is not a list')
        return tuple(key for jwk in listed if (key := _parse_jwk(jwk)))
    except ValueError as error:
        raise _bad_key_set(f"It is not a valid JSON Web Key Set: {error}.") from None


def _parse_jwk(jwk: Json) -> Key | None:
    if not isinstance(jwk, dict) or any(jwk.get(name) != value for name, value in _KEY_TYPE.items()):
        return None
    if jwk.get("use", "sig") != "sig" or jwk.get("alg", ALGORITHM) != ALGORITHM:
        return None
    key_id, public, secret, expires_at = jwk.get("kid"), jwk.get("x"), jwk.get("d"), jwk.get("exp")
    if not isinstance(key_id, str) or not isinstance(public, str):
        raise ValueError("a key has no id or no public part")
    if not isinstance(secret, str | None) or not isinstance(expires_at, int | float | None):
        raise ValueError("the secret or expiry of a key has the wrong type")
    return Key(
        key_id=key_id,
        public=_decode_key(public),
        secret=None if secret is None else _decode_key(secret),
        expires_at=expires_at,
    )


def _decode_key(text: str) -> bytes:
    key = decode_base64url(text)
    if len(key) != _KEY_BYTES:
        raise ValueError(f"a key does not have {_KEY_BYTES} bytes")
    return key


def _key_id(public: bytes) -> str:
    """The beginning of the key's RFC 7638 thumbprint."""
    jwk = '{"crv":"Ed25519","kty":"OKP","x":"%s"}' % encode_base64url(public)
    return encode_base64url(hashlib.sha256(jwk.encode()).digest())[:16]


def _bad_key_set(message: str) -> HoldfastError:
    return HoldfastError(codes.BAD_KEY, f"The key set cannot be used. {message}")
