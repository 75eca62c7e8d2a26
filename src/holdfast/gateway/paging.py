"""Merged lists, and their pages. A cursor contains a digest of the list, so that it is refused if the list has changed or is another one."""

import base64
import binascii
import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.messages import Raw

PAGE_SIZE = 250
ITEMS_PER_STEP = 32
"""How many items of a list are handled before the event loop may do other work."""
_LARGE_BYTES = 16 * 1024
_ITEM_BYTES = 128  # about what an item takes besides its text


class _Cursor(msgspec.Struct, array_like=True):
    offset: int
    list_digest: str


@dataclass(frozen=True, slots=True)
class MergedList:
    """A list of the items of all servers, as the client gets them."""

    items: Sequence[Raw]
    digest: str
    size: int
    """About how many bytes it takes."""

    @property
    def is_large(self) -> bool:
        """Whether the list takes too long to be made for each request."""
        return self.size > _LARGE_BYTES or len(self.items) > PAGE_SIZE

    def with_item(self, item: Raw) -> "MergedList":
        """The list with one more item at its end."""
        digest = hashlib.sha256(self.digest.encode() + item).hexdigest()
        return MergedList([*self.items, item], digest, self.size + len(item) + _ITEM_BYTES)


def merge_steps(items: Sequence[Raw]) -> Generator[None, None, MergedList]:
    """Make a list of these items. Each `yield` ends a step of the work."""
    digest, size = hashlib.sha256(), 0
    for start in range(0, len(items), ITEMS_PER_STEP):
        text = b"\n".join(items[start : start + ITEMS_PER_STEP])
        digest.update(text + b"\n")
        size += len(text)
        yield
    return MergedList(items, digest.hexdigest(), size + _ITEM_BYTES * len(items))


def page_of(key: str, merged: MergedList, cursor: str | None) -> dict[str, Any]:
    """The page at this cursor, as the members of a result."""
    items, digest = merged.items, merged.digest[:16]
    if cursor is None and len(items) <= PAGE_SIZE:
        return {key: items}
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
