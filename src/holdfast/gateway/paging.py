"""Pages of a merged list. A cursor contains a digest of the list, so that it is refused if the list has changed or is another one."""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.messages import Raw

PAGE_SIZE = 250


class _Cursor(msgspec.Struct, array_like=True):
    offset: int
    list_digest: str


def page_of(key: str, items: Sequence[Raw], cursor: str | None) -> dict[str, Any]:
    """The page at this cursor, as the members of a result."""
    if cursor is None and len(items) <= PAGE_SIZE:
        return {key: items}
    digest = hashlib.sha256(b"\n".join(items)).hexdigest()[:16]
    offset = 0 if cursor is None else _read_offset(cursor, digest, len(items))
    page: dict[str, Any] = {key: items[offset : offset + PAGE_SIZE]}
    if offset + PAGE_SIZE < len(items):
        token = msgspec.json.encode(_Cursor(offset + PAGE_SIZE, digest))
        page["nextCursor"] = base64.urlsafe_b64encode(token).decode()
    return page


def _read_offset(cursor: str, digest: str, length: int) -> int:
    try:
        decoded = msgspec.json.decode(base64.urlsafe_b64decode(cursor[:200]), type=_Cursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        decoded = None
    if decoded is None or not 0 <= decoded.offset < length or decoded.list_digest != digest:
        raise HoldfastError(
            codes.BAD_ARGUMENT, "The cursor is not valid, or the list has changed. List again without one."
        )
    return decoded.offset
