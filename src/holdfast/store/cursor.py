"""Where the next page begins, in a form that only the store that gave it can read, and only for the same question."""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from dataclasses import replace

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.query import SearchQuery, SessionQuery

_MAC = 16
_LONGEST = 200
_position = msgspec.msgpack.Decoder(tuple[int, int])


def encode_cursor(position: tuple[int, int], query: SessionQuery | SearchQuery, secret: bytes) -> str:
    """A cursor for the answers of this query after this position."""
    body = msgspec.msgpack.encode(position)
    return urlsafe_b64encode(_mac(body, query, secret) + body).decode().rstrip("=")


def decode_cursor(query: SessionQuery | SearchQuery, secret: bytes) -> tuple[int, int] | None:
    """The position of the query's cursor; None when it has none."""
    if query.cursor is None:
        return None
    try:
        raw = urlsafe_b64decode(query.cursor[:_LONGEST] + "=" * (-len(query.cursor) % 4))
        mac, body = raw[:_MAC], raw[_MAC:]
        if hmac.compare_digest(mac, _mac(body, query, secret)):
            return _position.decode(body)
    except (Error, ValueError, msgspec.DecodeError):
        pass
    raise HoldfastError(
        codes.BAD_CURSOR, f"The cursor {query.cursor[:40]!r} was not given by this store for this query."
    )


def _mac(body: bytes, query: SessionQuery | SearchQuery, secret: bytes) -> bytes:
    question = msgspec.msgpack.encode((type(query).__name__, replace(query, cursor=None)))
    return hmac.digest(secret, hashlib.sha256(question).digest() + body, "sha256")[:_MAC]
