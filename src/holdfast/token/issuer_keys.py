"""The public keys of an issuer (RFC 7517, RFC 7518, RFC 8037), and when they are fetched again."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.token.jws import decode_base64url, parse_object

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512

    Hash: TypeAlias = SHA256 | SHA384 | SHA512

VerifySignature: TypeAlias = Callable[[str, bytes, bytes], None]
"""Takes the algorithm, the signed bytes and the signature. Raises `InvalidSignature` or ValueError if they do not match."""

RSA_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_EC_CURVES = {"P-256": ("ES256", 32), "P-384": ("ES384", 48), "P-521": ("ES512", 66)}
_MIN_RSA_BITS, _MAX_RSA_BITS = 2048, 8192
_MAX_KEYS = 64
_MIN_FETCH_SECONDS = 30.0
"""The keys are fetched at most once in this time, even if tokens name unknown keys."""
_OLD_KEYS_WAIT_SECONDS = 1.0
"""How long a token whose key is known, but old, waits for a fetch that has begun. If the issuer is slower, the old key is used."""
_MAX_AGE_SECONDS = 3600.0
"""The keys are fetched again after this time. If that fails, the old keys are used until they are twice as old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerKey:
    """One public key, with the algorithms that it may be used for."""

    key_id: str
    algorithms: frozenset[str]
    verify_signature: VerifySignature = field(repr=False)

    def verify(self, algorithm: str, signed: bytes, signature: bytes) -> None:
        """Raise `InvalidSignature` or ValueError unless the key made this signature with this algorithm."""
        if algorithm not in self.algorithms:
            raise ValueError("the key may not be used with this algorithm")
        self.verify_signature(algorithm, signed, signature)


class IssuerKeys:
    """The current keys of one issuer. `fetch` returns the issuer's key set.

    The age of the keys is measured with a clock that is never set, so that withdrawn keys are not valid for longer if the wall clock is
    set back.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[bytes]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: dict[str, IssuerKey] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failure = ""
        """Why the last fetch failed, if it left no keys to use; else empty."""
        self._fetching: asyncio.Task[None] | None = None
        """The fetch that is running, which all requests share."""
        self._wait_until = 0.0
        """The time of the event loop until which tokens with old keys wait for the fetch."""

    async def prepare(self, key_id: str) -> None:
        """Fetch the keys if they are old, or if none has this id.

        Raise BAD_KEY if they could not be fetched, and no earlier keys can be used. If an earlier key can be used, this waits only a moment.
        """
        loop = asyncio.get_running_loop()
        if self._fetching is None and self._must_fetch(key_id):
            # In an empty context: the fetch does not belong to the request that begins it.
            self._fetching = loop.create_task(self._fetch_keys(), context=Context())
            self._wait_until = loop.time() + _OLD_KEYS_WAIT_SECONDS
        fetching = self._fetching
        if fetching is not None and not self._is_new_enough(key_id, _MAX_AGE_SECONDS):
            is_usable = self._is_new_enough(key_id, 2 * _MAX_AGE_SECONDS)
            seconds = max(0.0, self._wait_until - loop.time()) if is_usable else None
            await asyncio.wait([fetching], timeout=seconds)
            if fetching.done():
                fetching.result()
        if self._failure:
            raise HoldfastError(codes.BAD_KEY, self._failure)

    def find(self, key_id: str) -> IssuerKey | None:
        """The key with this id. If the id is empty and no key has an empty id: the only key, if there is just one."""
        key = self._keys.get(key_id)
        if key is None and not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return key

    async def _fetch_keys(self) -> None:
        self._tried_at = self._clock()
        try:
            self._keys = read_key_set(await self._fetch())
        except asyncio.CancelledError:  # the event loop ends
            self._tried_at = None  # the next request tries again
            raise
        except HoldfastError as error:
            if not self._keys or self._is_too_old(2 * _MAX_AGE_SECONDS):
                self._keys, self._failure = {}, error.message
        else:
            self._fetched_at, self._failure = self._clock(), ""
        finally:
            self._fetching = None

    def _must_fetch(self, key_id: str) -> bool:
        if self._is_new_enough(key_id, _MAX_AGE_SECONDS):
            return False
        return self._tried_at is None or self._clock() - self._tried_at >= _MIN_FETCH_SECONDS

    def _is_new_enough(self, key_id: str, seconds: float) -> bool:
        """Whether a key has this id, and the keys are not older than this."""
        return self.find(key_id) is not None and not self._is_too_old(seconds)

    def _is_too_old(self, seconds: float) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at > seconds


def read_key_set(text: bytes) -> dict[str, IssuerKey]:
    """The keys of a key set that can verify signatures, by id.

    Other keys, RSA keys of unusual size, and all keys after the first `_MAX_KEYS` are skipped. Of keys with the same id, the first is used.
    """
    try:
        keys = parse_object(text).get("keys")
    except ValueError:
        keys = None
    if not isinstance(keys, list):
        raise HoldfastError(codes.BAD_KEY, "The issuer's key set is not a JSON object with a list `keys`.")
    keys_by_id: dict[str, IssuerKey] = {}
    for raw in keys[:_MAX_KEYS]:
        key = _read_key(raw) if isinstance(raw, dict) else None
        if key is not None:
            keys_by_id.setdefault(key.key_id, key)
    return keys_by_id


def _read_key(raw: JsonObject) -> IssuerKey | None:
    """One key of a key set; None if it cannot verify signatures here."""
    key_id = raw.get("kid", "")
    if not isinstance(key_id, str) or raw.get("use", "sig") != "sig":
        return None
    try:
        match raw.get("kty"):
            case "RSA":
                algorithms, verify = RSA_ALGORITHMS, _rsa_verifier(raw)
            case "EC":
                algorithms, verify = _ec_verifier(raw)
            case "OKP":
                algorithms, verify = frozenset({"EdDSA", "Ed25519"}), _ed25519_verifier(raw)
            case _:
                return None
    except ValueError:
        return None
    if isinstance(raw.get("alg"), str):
        algorithms &= {str(raw["alg"])}
    return IssuerKey(key_id=key_id, algorithms=algorithms, verify_signature=verify)


def _rsa_verifier(raw: JsonObject) -> VerifySignature:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    modulus, exponent = _decode_number(raw.get("n")), _decode_number(raw.get("e"))
    if not _MIN_RSA_BITS <= modulus.bit_length() <= _MAX_RSA_BITS or exponent.bit_length() > 32:
        raise ValueError("unusual size")
    key = RSAPublicNumbers(exponent, modulus).public_key()

    def verify(algorithm: str, signed: bytes, signature: bytes) -> None:
        _verify_rsa(key, algorithm, signed, signature)

    return verify


def _verify_rsa(key: "RSAPublicKey", algorithm: str, signed: bytes, signature: bytes) -> None:
    from cryptography.hazmat.primitives.asymmetric import padding

    digest = _hash_of(algorithm)
    if algorithm.startswith("PS"):
        pss = padding.PSS(mgf=padding.MGF1(digest), salt_length=digest.digest_size)
        key.verify(signature, signed, pss, digest)
    else:
        key.verify(signature, signed, padding.PKCS1v15(), digest)


def _ec_verifier(raw: JsonObject) -> tuple[frozenset[str], VerifySignature]:
    """The algorithm of an elliptic-curve key, and the function that verifies its signatures."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    name = raw.get("crv")
    if not isinstance(name, str) or name not in curves:
        raise ValueError("unknown curve")
    curve_algorithm, size = _EC_CURVES[name]
    key = ec.EllipticCurvePublicNumbers(
        _decode_number(raw.get("x")), _decode_number(raw.get("y")), curves[name]
    ).public_key()

    def verify(algorithm: str, signed: bytes, signature: bytes) -> None:
        if len(signature) != 2 * size:
            raise ValueError("wrong length")
        r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
        key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(_hash_of(algorithm)))

    return frozenset({curve_algorithm}), verify


def _ed25519_verifier(raw: JsonObject) -> VerifySignature:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if raw.get("crv") != "Ed25519":
        raise ValueError("unknown curve")
    key = Ed25519PublicKey.from_public_bytes(_decode_bytes(raw.get("x")))

    def verify(algorithm: str, signed: bytes, signature: bytes) -> None:
        key.verify(signature, signed)

    return verify


def _hash_of(algorithm: str) -> "Hash":
    from cryptography.hazmat.primitives import hashes

    match algorithm[2:]:
        case "256":
            return hashes.SHA256()
        case "384":
            return hashes.SHA384()
        case _:
            return hashes.SHA512()


def _decode_number(value: Json) -> int:
    return int.from_bytes(_decode_bytes(value))


def _decode_bytes(value: Json) -> bytes:
    if not isinstance(value, str) or len(value) > 4096 or not value.isascii():
        raise ValueError("not base64url")
    return decode_base64url(value)
