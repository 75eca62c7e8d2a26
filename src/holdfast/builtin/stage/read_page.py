"""Reads the documents of a page with the page script, and searches them for texts and elements.

Functions of the page script return the next free ref number (`next`), and how many elements they did not read, because the page is
too large or the time ran out (`cut`, here `unread`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.builtin.stage.closed_roots import ClosedRootSearch
from holdfast.builtin.stage.codes import STALE_REF
from holdfast.builtin.stage.frames import Document, Frame
from holdfast.builtin.stage.limits import MAX_FRAMES, SCRIPT_SECONDS
from holdfast.builtin.stage.tab import Tab
from holdfast.toolkit import ToolError

# The part of the timeout for which the page script may read or search. What it has not read by then is left out.
_READING_SHARE = 0.3
_SEARCHING_SHARE = 0.8
PAGE_SECONDS = 20.0  # a page of 300,000 elements does not answer while the browser computes its layout
FRAME_SECONDS = 4.0  # a frame that does not answer must not make the whole page unreadable


async def find_root(tab: Tab, ref_number: int) -> tuple[Document, int | None]:
    """Return the document in which to read an element, and its ref number there.

    For the element of a frame: the document that is loaded in the frame, and None, because all of it is read.
    """
    document = tab.find_ref(ref_number)
    frame = (await frames_by_element(tab, document)).get(ref_number)
    if frame is None:
        return document, ref_number
    return await tab.document(frame.id, FRAME_SECONDS), None


async def frames_by_element(tab: Tab, document: Document) -> dict[int, Frame]:
    """Return the frames in a document, by the ref numbers of their elements."""
    frames: dict[int, Frame] = {}
    for frame in tab.tree.children(document.frame_id)[:MAX_FRAMES]:
        owner = await tab.frame_element(frame)
        if owner is not None:
            frames[owner[1]] = frame
    return frames


async def read_document(
    search: ClosedRootSearch, tab: Tab, document: Document, function: str, timeout: float, **options: Any
) -> dict[str, Any]:
    """Call a function that reads a document. Call it again if the document has closed shadow roots that were not known."""
    result, is_root_missing = await asyncio.gather(
        _call(tab, document, function, timeout, **options), search.is_root_missing(document, 2 * timeout)
    )
    if is_root_missing and await search.add_missing(document):
        result = await _call(tab, document, function, timeout, **options)
    return result


async def _call(
    tab: Tab,
    document: Document,
    function: str,
    timeout: float,
    *,
    share: float = _READING_SHARE,
    **options: Any,
) -> dict[str, Any]:
    ms = timeout * share * 1000
    result = await tab.run_for_large_result(document, function, timeout, next=tab.next_ref, ms=ms, **options)
    tab.claim(document, result["next"])
    if result.get("gone"):
        raise ToolError(STALE_REF, "The element is no longer on the page.")
    return result


def format_lines(tab: Tab, flat: Sequence[Any], depth: int = 0) -> list[str]:
    """Return the lines of an outline. `flat` is a flat list of the depth, the ref number (-1 for none) and the text of each line."""
    prefix = tab.ref_prefix
    return [
        f"{' ' * (depth + flat[at])}{f'[{prefix}{flat[at + 1]}] ' if flat[at + 1] >= 0 else ''}{flat[at + 2]}"
        for at in range(0, len(flat), 3)
    ]


async def find_lines(
    tab: Tab, *, text: str, roles: Sequence[str] | None, within: int | None, details: bool = False
) -> tuple[list[str], int]:
    """Return the lines in all frames that contain a text and have one of the roles, and how many elements were not read."""
    first, root = (await tab.document(), None) if within is None else await find_root(tab, within)
    search = ClosedRootSearch(tab)
    lines: list[str] = []
    unread = 0

    async def visit(document: Document) -> list[int]:
        nonlocal unread
        is_first = document is first
        result = await read_document(
            search,
            tab,
            document,
            "find",
            PAGE_SECONDS if is_first else FRAME_SECONDS,
            text=text,
            roles=roles,
            prefix=tab.ref_prefix,
            within=root if is_first else None,
            details=details,
        )
        lines.extend(format_lines(tab, result["lines"]))
        unread += result["cut"]
        return result["frames"]

    await visit_documents(tab, first, visit)
    return lines, unread


@dataclass(frozen=True, slots=True)
class FoundText:
    """Whether a page shows a text, and how many elements were not read."""

    is_found: bool
    unread: int


async def search_text(tab: Tab, text: str, timeout: float, within: int | None = None) -> FoundText:
    """Search the page with all of its frames, or one element, for a text. Raises PAGE_HUNG if the page does not answer in time."""
    whole = (await tab.document(timeout=timeout), None)
    first, root = whole if within is None else await find_root(tab, within)
    search = ClosedRootSearch(tab)
    is_found = False
    unread = 0

    async def visit(document: Document) -> list[int] | None:
        nonlocal is_found, unread
        options = {"text": text, "within": root if document is first else None}
        result = await _call(tab, document, "hasText", timeout, share=_SEARCHING_SHARE, **options)
        if not result["found"] and await search.add_if_missing(document):
            result = await _call(tab, document, "hasText", timeout, share=_SEARCHING_SHARE, **options)
        is_found = result["found"]
        unread += result["cut"]
        return None if is_found else result["frames"]

    await visit_documents(tab, first, visit)
    return FoundText(is_found, 0 if is_found else unread)


async def visit_documents(
    tab: Tab, first: Document, visit: Callable[[Document], Awaitable[list[int] | None]]
) -> None:
    """Visit a document, and then those of the frames that are shown in it. Documents in frames that do not answer are skipped.

    `visit` returns the ref numbers of the frame elements that are shown, or None to end the visits.
    """
    waiting = deque([first])
    frames_left = MAX_FRAMES
    while waiting:
        document = waiting.popleft()
        try:
            ref_numbers = await visit(document)
        except ToolError:
            if document is first:
                raise
            continue
        if ref_numbers is None:
            return
        frames = await frames_by_element(tab, document) if ref_numbers else {}
        for ref_number in ref_numbers[:frames_left]:
            frame = frames.get(ref_number)
            inner = None if frame is None else tab.find_document(frame.id)
            if inner is not None:
                waiting.append(inner)
                frames_left -= 1


async def similar_refs(tab: Tab, ref_number: int) -> list[str]:
    """Return the lines of the current page that look like the element that a stale ref named."""
    wanted = f"[{tab.ref(ref_number)}] "
    for snapshot in reversed(tab.snapshots.values()):
        line = next((line for line in snapshot.lines if line.lstrip(" ").startswith(wanted)), None)
        if line is not None:
            document = await tab.document()
            result = await _call(
                tab, document, "similar", SCRIPT_SECONDS, text=line.lstrip(" ")[len(wanted) :]
            )
            return format_lines(tab, result["lines"])
    return []
