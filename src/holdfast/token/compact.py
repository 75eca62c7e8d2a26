"""A JSON Web Signature in its compact form, with Ed25519 and nothing else (RFC 7515, RFC 8037)."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field

from holdfast.model.json import Json, JsonObject
from holdfast.token.refusal import refused

ALGORITHM = "EdDSA"
TYPE = "holdfast-context+jwt"
TOKEN_BYTES = 8 * 1024

_HEADER_NAMES = {"alg", "kid", "typ"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token taken apart; nothing in it is believed before the signature was checked."""

    key_id: str
    signed: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def header_of(key_id: str) -> bytes:
    """The first part of every token that this key signs."""
    return _encoded(_written({"alg": ALGORITHM, "kid": key_id, "typ": TYPE}))


def to_sign(header: bytes, payload: JsonObject) -> bytes:
    """What is signed: header and payload."""
    return b".".join((header, _encoded(_written(payload))))


def joined(signed: bytes, signature: bytes) -> str:
    """The token, ready to be sent."""
    return b".".join((signed, _encoded(signature))).decode("ascii")


def taken_apart(text: str) -> Token:
    """The parts of a token, whose header says what it must: the algorithm is ours to choose, never the header's."""
    if len(text) > TOKEN_BYTES:
        raise refused("too_long", f"The token is longer than {TOKEN_BYTES} bytes.")
    try:
        signed, _, last = text.encode("ascii").rpartition(b".")
        first, middle = signed.split(b".")
        header, payload, signature = read_object(_decoded(first)), _decoded(middle), _decoded(last)
    except ValueError:
        raise refused(
            "malformed", "The token is not three parts of base64url, the first a JSON object."
        ) from None
    if header.get("alg") != ALGORITHM:
        raise refused("algorithm", f"The token is not signed with {ALGORITHM}.")
    key_id = header.get("kid")
    if header.get("typ") != TYPE or not isinstance(key_id, str) or header.keys() != _HEADER_NAMES:
        raise refused("malformed", f"The token's header is not that of a {TYPE}.")
    return Token(key_id=key_id, signed=signed, payload=payload, signature=signature)


def read_object(text: bytes) -> JsonObject:
    """The JSON object in the text, with every name once; anything else is a ValueError."""
    try:
        value: Json = _READER.decode(text.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def text_of(data: bytes) -> str:
    """Bytes as base64url without padding."""
    return _encoded(data).decode("ascii")


def bytes_of(text: str) -> bytes:
    """The bytes that base64url text stands for; another spelling of the same bytes is a ValueError."""
    return _decoded(text.encode("ascii"))


def _written(value: JsonObject) -> bytes:
    return _WRITER.encode(value).encode("ascii")


def _once_each(pairs: list[tuple[str, Json]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is there twice")
    return value


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    data = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    # Python skips letters that are not base64 and ignores spare bits: one token would have many spellings.
    if _encoded(data) != text:
        raise ValueError("not base64url")
    return data


_WRITER = json.JSONEncoder(separators=(",", ":"))
_READER = json.JSONDecoder(object_pairs_hook=_once_each)
