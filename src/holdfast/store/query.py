"""Queries for sessions and messages, and the signed cursors that page through their results."""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.store.types import SessionState

MAX_PAGE_SIZE = 1000
MAX_PAGE_BYTES = 256 * 1024
"""How many characters the folders, titles and tags in one page of sessions may have together. A single session may have more."""
MAX_QUERY_TAGS = 32
_MAC_BYTES = 16
_MAX_CURSOR = 200  # characters; a longer cursor is not valid
_position_decoder = msgspec.msgpack.Decoder(tuple[int, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """Which sessions a caller may see. None means any; the user "" means sessions without a user."""

    workspace_id: str | None = None
    trust_level: Trust | None = None
    user_id: str | None = None


ALL_SESSIONS = Visibility()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Selects the visible sessions that match all of the fields, the most recent first."""

    visibility: Visibility
    cwd: str | None = None
    tags: tuple[str, ...] = ()
    source: str | None = None
    parent: SessionId | None = None
    state: SessionState | None = None
    updated_before: datetime | None = None
    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        _check_limit(self.limit)
        _check_tags(self.tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """Selects the messages and titles of visible sessions that contain all of the words, the latest first."""

    visibility: Visibility
    words: str
    tags: tuple[str, ...] = ()
    source: str | None = None
    limit: int = 20
    cursor: str | None = None

    def __post_init__(self) -> None:
        _check_limit(self.limit)
        _check_tags(self.tags)


def count_fitting(sizes: Iterable[int], limit: int) -> int:
    """How many sessions of these sizes fit into one page: at least one, if there are any."""
    total = count = 0
    for size in islice(sizes, limit):
        total += size
        if count and total > MAX_PAGE_BYTES:
            break
        count += 1
    return count


def encode_cursor(position: tuple[int, int], query: SessionQuery | SearchQuery, secret: bytes) -> str:
    """A cursor for the results after this position, valid only for this query and this store.

    The position is the sort key of the last result of a page. Each kind of store has its own meaning of the two numbers.
    """
    body = msgspec.msgpack.encode(position)
    return _to_text(_mac(body, query, secret) + body)


def decode_cursor(query: SessionQuery | SearchQuery, secret: bytes) -> tuple[int, int] | None:
    """The position in the query's cursor; None if the query has no cursor. Raise if the cursor is not valid."""
    if query.cursor is None:
        return None
    try:
        raw = urlsafe_b64decode(query.cursor[:_MAX_CURSOR] + "=" * (-len(query.cursor) % 4))
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        # Python's decoder skips characters that are not base64, so the text must be the one that encoding gives.
        is_canonical = _to_text(raw) == query.cursor
        if hmac.compare_digest(mac, _mac(body, query, secret)) and is_canonical:
            return _position_decoder.decode(body)
    except (Error, ValueError, msgspec.DecodeError):
        pass
    raise HoldfastError(
        codes.BAD_CURSOR,
        f"The cursor {query.cursor[:40]!r} is not valid for this query in this store. Repeat the query without a cursor.",
    )


def _to_text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE_SIZE:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"`limit` must be between 1 and {MAX_PAGE_SIZE}, not {limit}."
        )


def _check_tags(tags: tuple[str, ...]) -> None:
    if len(tags) > MAX_QUERY_TAGS:
        raise HoldfastError(codes.BAD_ARGUMENT, f"Give at most {MAX_QUERY_TAGS} tags, not {len(tags)}.")


def _mac(body: bytes, query: SessionQuery | SearchQuery, secret: bytes) -> bytes:
    fields = msgspec.msgpack.encode((type(query).__name__, replace(query, cursor=None)))
    return hmac.digest(secret, hashlib.sha256(fields).digest() + body, "sha256")[:_MAC_BYTES]
