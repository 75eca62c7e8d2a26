"""Return a long list in pages, so that a result does not fill the model's context."""

from collections.abc import Sequence
from typing import Annotated, Generic, TypeVar

import msgspec

from holdfast.model import codes
from holdfast.toolkit.errors import ToolError

T = TypeVar("T")

CURSOR_HELP = "Pass it as `cursor` to get the next page."
_MAX_CURSOR = 15  # digits: more than any list needs, and quick to parse


class Page(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """A part of a list."""

    items: list[T]
    next_cursor: Annotated[str, msgspec.Meta(description=CURSOR_HELP)] = ""
    """Empty on the last page, where it is not sent. If the list is in a database, choose cursors of your own."""
    total: int | None = None
    """The length of the whole list, if it is known."""


def paginate(items: Sequence[T], cursor: str = "", *, size: int = 50) -> Page[T]:
    """The page of a list that begins at the cursor; the first page if the cursor is empty.

    The cursor is the number of items before the page. Raises BAD_CURSOR if it is not a number, or greater than the length of the list.
    """
    if size < 1:
        raise ValueError("A page has at least one item.")
    start = _read_cursor(cursor, len(items))
    end = start + size
    return Page(
        items=list(items[start:end]), next_cursor=str(end) if end < len(items) else "", total=len(items)
    )


def _read_cursor(cursor: str, length: int) -> int:
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MAX_CURSOR) or int(cursor) > length:
        raise ToolError(
            codes.BAD_CURSOR,
            f"{cursor[:40]!r} is not a cursor of this list. Pass the `next_cursor` of the previous page, or none.",
        )
    return int(cursor)
