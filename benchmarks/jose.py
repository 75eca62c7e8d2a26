"""Our signer and verifier on other JOSE libraries, with every check of ours that the library does not make."""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from joserfc import jws as joserfc  # comes with fastmcp
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import OKPKey

from holdfast.model.json import JsonObject
from holdfast.token.jws import (
    ALGORITHM,
    MAX_TOKEN_BYTES,
    TYPE,
    decode_base64url,
    encode_base64url,
    parse_object,
    token_error,
)
from holdfast.token.signer import LoadedKeys, Signer
from holdfast.token.verifier import Verifier

warnings.simplefilter("ignore", SecurityWarning)  # joserfc prefers the name Ed25519 (RFC 9864) to EdDSA

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Library:
    """One implementation of both sides."""

    signer: Callable[[Path], Signer]
    verifier: Callable[[Path | JsonObject], Verifier]


class PyJwtSigner(Signer):
    _jws = jwt.PyJWS(algorithms=[ALGORITHM])

    def _sign(self, loaded: LoadedKeys, payload: JsonObject) -> str:
        header = {"kid": loaded.keys[0].key_id, "typ": TYPE}
        return self._jws.encode(
            _encode(payload).encode(), loaded.private, ALGORITHM, header, sort_headers=False
        )


class PyJwtVerifier(Verifier):
    """PyJWT checks the encoding, but accepts padding, any header and duplicate names."""

    _jws = jwt.PyJWS(algorithms=[ALGORITHM])

    def _verify_signature(self, token: str, now: float) -> bytes:
        _check_length(token)
        key_id = _check_header(token.partition(".")[0])
        if "=" in token:
            raise token_error("malformed", "The token has padding.")
        public = self._ed25519_key(self._find_key(key_id, now))
        try:
            return self._jws.decode_complete(token, public, [ALGORITHM])["payload"]
        except jwt.InvalidTokenError:
            raise token_error("signature", "The token's signature is not valid.") from None


class JoserfcSigner(Signer):
    _registry = joserfc.JWSRegistry(algorithms=[ALGORITHM])
    _private: OKPKey | None = None

    def _sign(self, loaded: LoadedKeys, payload: JsonObject) -> str:
        key = loaded.keys[0]
        if self._private is None:
            assert key.secret
            self._private = _import_key(key.public, d=encode_base64url(key.secret))
        header = {"alg": ALGORITHM, "kid": key.key_id, "typ": TYPE}
        return joserfc.serialize_compact(header, _encode(payload), self._private, registry=self._registry)


class JoserfcVerifier(Verifier):
    """joserfc checks the encoding, but accepts registered headers and duplicate names."""

    _registry = joserfc.JWSRegistry(algorithms=[ALGORITHM])

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._imported: dict[bytes, OKPKey] = {}

    def _verify_signature(self, token: str, now: float) -> bytes:
        _check_length(token)
        try:
            parts = joserfc.extract_compact(token.encode("ascii"), registry=self._registry)
        except (JoseError, ValueError):
            raise token_error("malformed", "The token is malformed.") from None
        key = self._find_key(_check_header(token.partition(".")[0]), now)
        if (public := self._imported.get(key.public)) is None:
            self._imported[key.public] = public = _import_key(key.public)
        if not joserfc.validate_compact(parts, public, registry=self._registry):
            raise token_error("signature", "The token's signature is not valid.")
        return parts.payload or b""


LIBRARIES = {
    "ours": Library(Signer, Verifier),
    "PyJWT": Library(PyJwtSigner, PyJwtVerifier),
    "joserfc": Library(JoserfcSigner, JoserfcVerifier),
}


def _check_length(token: str) -> None:
    if len(token) > MAX_TOKEN_BYTES:
        raise token_error("too_long", "The token is too long.")


def _check_header(segment: str) -> str:
    """The key id; raises unless the header has exactly our three names, once each."""
    try:
        header = parse_object(decode_base64url(segment))
    except ValueError:
        raise token_error("malformed", "The header is malformed.") from None
    key_id = header.get("kid")
    if header.get("alg") != ALGORITHM or header.get("typ") != TYPE or not isinstance(key_id, str):
        raise token_error("malformed", "The header is not ours.")
    if header.keys() != {"alg", "kid", "typ"}:
        raise token_error("malformed", "The header is not ours.")
    return key_id


def _import_key(public: bytes, **secret: str) -> OKPKey:
    return OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": encode_base64url(public), **secret})
