"""The keys as values: the one that signs, the ones that still verify, and what verifiers are given of them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.token.claims import LIFETIME
from holdfast.token.compact import ALGORITHM, bytes_of, read_object, text_of
from holdfast.token.seen import MARGIN

_KIND = {"kty": "OKP", "crv": "Ed25519"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: its public half, its secret half where it still signs, and when it stops verifying."""

    key_id: str
    public: bytes
    secret: bytes | None = field(default=None, repr=False)
    until: float | None = None

    def holds(self, now: float) -> bool:
        """Whether its tokens may still be believed."""
        return self.until is None or now < self.until


def made() -> Key:
    """A new key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    return Key(key_id=_thumbprint(public), public=public, secret=private.private_bytes_raw())


def rotated(keys: tuple[Key, ...], new: Key, now: float) -> tuple[Key, ...]:
    """The keys after a change: the new one signs; the others forget their secret and verify what they signed."""
    until = now + LIFETIME + MARGIN
    kept = (replace(key, secret=None, until=key.until or until) for key in keys if key.holds(now))
    return (new, *kept)


def public_jwks(keys: tuple[Key, ...], now: float) -> JsonObject:
    """What verifiers need: the public halves of all keys that hold, as a JSON Web Key Set."""
    return {"keys": [_public_jwk(key) for key in keys if key.holds(now)]}


def private_jwks(keys: tuple[Key, ...]) -> JsonObject:
    """The keys as they are kept in their file."""
    return {
        "keys": [{**_public_jwk(key), **({"d": text_of(key.secret)} if key.secret else {})} for key in keys]
    }


def read_private(text: bytes) -> tuple[Key, ...]:
    """The keys in the host's own file, the one that signs first."""
    keys = _read(text)
    if not keys or keys[0].secret is None:
        raise _bad("It holds no key to sign with.")
    return keys


def read_public(jwks: bytes | str | Mapping[str, object]) -> dict[str, Key]:
    """The keys of a key set that can verify our tokens, by id; keys of other kinds are passed over."""
    text = json.dumps(jwks).encode() if isinstance(jwks, Mapping) else jwks
    keys = _read(text.encode() if isinstance(text, str) else text)
    if any(key.secret is not None for key in keys):
        raise _bad("It holds a secret key. Give verifiers the public key set only, and rotate the key.")
    by_id = {key.key_id: key for key in keys}
    if len(by_id) != len(keys):
        raise _bad("Two of its keys have one id.")
    if not by_id:
        raise _bad("It holds no Ed25519 key.")
    return by_id


def _public_jwk(key: Key) -> JsonObject:
    until: JsonObject = {} if key.until is None else {"exp": key.until}
    return {**_KIND, "use": "sig", "alg": ALGORITHM, "kid": key.key_id, "x": text_of(key.public), **until}


def _read(text: bytes) -> tuple[Key, ...]:
    try:
        listed = read_object(text).get("keys")
        if not isinstance(listed, list):
            raise ValueError("no list of keys")
        return tuple(key for jwk in listed if (key := _key(jwk)))
    except ValueError:
        raise _bad('It is not a JSON Web Key Set: {"keys": [...]}.') from None


def _key(jwk: Json) -> Key | None:
    if not isinstance(jwk, dict) or any(jwk.get(name) != value for name, value in _KIND.items()):
        return None
    if jwk.get("use", "sig") != "sig" or jwk.get("alg", ALGORITHM) != ALGORITHM:
        return None
    key_id, public, secret, until = jwk.get("kid"), jwk.get("x"), jwk.get("d"), jwk.get("exp")
    if not isinstance(key_id, str) or not isinstance(public, str):
        raise ValueError("a key without an id, or without its public half")
    if not isinstance(secret, str | None) or not isinstance(until, int | float | None):
        raise ValueError("a key with an odd secret or end")
    halves = [bytes_of(half) for half in (public, secret) if half is not None]
    if any(len(half) != 32 for half in halves):
        raise ValueError("a key of another length")
    return Key(key_id=key_id, public=halves[0], secret=halves[1] if secret is not None else None, until=until)


def _thumbprint(public: bytes) -> str:
    """A name that follows from the key itself: the beginning of its RFC 7638 thumbprint."""
    jwk = '{"crv":"Ed25519","kty":"OKP","x":"%s"}' % text_of(public)
    return text_of(hashlib.sha256(jwk.encode()).digest())[:16]


def _bad(message: str) -> HoldfastError:
    return HoldfastError(codes.BAD_KEY, f"The key set cannot be used. {message}")
