"""The context token as a JSON Web Signature in compact serialization, with Ed25519 only (RFC 7515, RFC 8037)."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject

ALGORITHM = "EdDSA"
TYPE = "holdfast-context+jwt"
MAX_TOKEN_BYTES = 8 * 1024

_HEADER_NAMES = {"alg", "kid", "typ"}

Reason: TypeAlias = Literal[
    "too_long",
    "malformed",
    "algorithm",
    "unknown_key",
    "signature",
    "claims",
    "issuer",
    "audience",
    "future",
    "expired",
    "lifetime",
    "request",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedToken:
    """The parts of a token whose signature is not verified yet."""

    key_id: str
    signing_input: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def token_error(reason: Reason, message: str) -> HoldfastError:
    """A BAD_TOKEN error. The message must not contain any part of the token."""
    return HoldfastError(codes.BAD_TOKEN, message, reason=reason)


def encode_header(key_id: str) -> bytes:
    """The encoded header of every token that this key signs."""
    return _b64encode(_encode_json({"alg": ALGORITHM, "kid": key_id, "typ": TYPE}))


def encode_signing_input(header: bytes, payload: JsonObject) -> bytes:
    """The bytes to sign: the encoded header and payload."""
    return b".".join((header, _b64encode(_encode_json(payload))))


def join_token(signing_input: bytes, signature: bytes) -> str:
    """The token as text."""
    return b".".join((signing_input, _b64encode(signature))).decode("ascii")


def parse_token(text: str) -> ParsedToken:
    """Parse a token and check its header. Raise BAD_TOKEN if it is malformed, or if its algorithm is not EdDSA."""
    if len(text) > MAX_TOKEN_BYTES:
        raise token_error("too_long", f"The token is longer than {MAX_TOKEN_BYTES} bytes.")
    try:
        signing_input, _, last = text.encode("ascii").rpartition(b".")
        first, middle = signing_input.split(b".")
        header, payload, signature = parse_object(_b64decode(first)), _b64decode(middle), _b64decode(last)
    except ValueError:
        raise token_error(
            "malformed",
            "The token does not consist of three parts in base64url, or its first part is not a JSON object with unique names.",
        ) from None
    if header.get("alg") != ALGORITHM:
        raise token_error("algorithm", f"The token is not signed with {ALGORITHM}.")
    key_id = header.get("kid")
    if header.get("typ") != TYPE or not isinstance(key_id, str) or header.keys() != _HEADER_NAMES:
        raise token_error("malformed", f"The token's header is not the header of a {TYPE}.")
    return ParsedToken(key_id=key_id, signing_input=signing_input, payload=payload, signature=signature)


def parse_object(text: bytes) -> JsonObject:
    """Parse a JSON object with unique names. Raise ValueError for anything else."""
    try:
        value: Json = _JSON_DECODER.decode(text.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def encode_base64url(data: bytes) -> str:
    """Encode bytes as base64url without padding."""
    return _b64encode(data).decode("ascii")


def decode_base64url(text: str) -> bytes:
    """Decode base64url without padding. Raise ValueError unless the encoding is canonical."""
    return _b64decode(text.encode("ascii"))


def _encode_json(value: JsonObject) -> bytes:
    return _JSON_ENCODER.encode(value).encode("ascii")


def _reject_duplicates(pairs: list[tuple[str, Json]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate name")
    return value


def _b64encode(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _b64decode(text: bytes) -> bytes:
    data = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    # Python skips characters that are not base64 and ignores unused bits, so a token could be spelled in many ways.
    if _b64encode(data) != text:
        raise ValueError("not base64url")
    return data


_JSON_ENCODER = json.JSONEncoder(separators=(",", ":"))
_JSON_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicates)
