"""Takes a snapshot of a page: its outline as text, with all frames and shadow roots.

`page_script/outline.js` makes the lines of each document, in the page.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.builtin.stage.closed_roots import ClosedRootSearch
from holdfast.builtin.stage.codes import PAGE_HUNG, STALE_REF
from holdfast.builtin.stage.frames import Document, Frame
from holdfast.builtin.stage.limits import MAX_FRAMES, MAX_SNAPSHOTS
from holdfast.builtin.stage.read_page import (
    FRAME_SECONDS,
    PAGE_SECONDS,
    find_root,
    format_lines,
    frames_by_element,
    read_document,
)
from holdfast.builtin.stage.snapshot_view import Snapshot
from holdfast.builtin.stage.tab import Tab
from holdfast.toolkit import ToolError

_ATTEMPTS = 5  # how often to read again if another page replaces the page while it is read
_REPLACE_SECONDS = 1.0


@dataclass(slots=True)
class _Reading:
    """The state of reading a page once."""

    tab: Tab
    search: ClosedRootSearch
    frames_left: int = MAX_FRAMES
    """How many frames may still be read."""
    unread: int = 0
    """How many elements and frames were not read so far."""
    title: str = ""
    url: str = ""


async def take_snapshot(tab: Tab, within: int | None = None) -> Snapshot:
    """Read the page, or the element with the ref number `within`, and keep the snapshot for later differences."""
    if within is not None:
        return await _take(tab, *await find_root(tab, within), is_part=True)
    for _ in range(_ATTEMPTS):
        document = await tab.document()
        try:
            return await _take(tab, document, None)
        except ToolError as error:
            if error.code is not STALE_REF:
                raise
        # Another page has replaced the page: read the new one.
        await tab.until(lambda gone=document.unique_id: gone not in tab.tree.documents, _REPLACE_SECONDS)
    raise ToolError(PAGE_HUNG, f"The page in {tab.id} keeps loading other pages.")


async def _take(tab: Tab, document: Document, within: int | None, *, is_part: bool = False) -> Snapshot:
    reading = _Reading(tab, ClosedRootSearch(tab))
    lines = await _read_lines(reading, document, 0, within)
    tab.snapshot_count += 1
    snapshot = Snapshot(
        id=f"p{tab.snapshot_count}",
        lines=tuple(lines),
        document=document.unique_id,
        is_part=is_part,
        unread=reading.unread,
        title=reading.title,
        url=reading.url,
    )
    tab.snapshots[snapshot.id] = snapshot
    while len(tab.snapshots) > MAX_SNAPSHOTS:
        tab.snapshots.popitem(last=False)
    return snapshot


async def _read_lines(reading: _Reading, document: Document, depth: int, within: int | None) -> list[str]:
    tab = reading.tab
    timeout = PAGE_SECONDS if depth == 0 else FRAME_SECONDS
    walked = await read_document(reading.search, tab, document, "walk", timeout, within=within)
    reading.unread += walked["cut"]
    if depth == 0:
        reading.title, reading.url = walked["title"], walked["url"]
    flat: list[Any] = walked["lines"]
    lines = format_lines(tab, flat, depth)
    if not walked["frames"]:
        return lines
    frames = await frames_by_element(tab, document)
    result: list[str] = []
    done = 0
    for index, ref_number in walked["frames"]:
        result += lines[done : index + 1]
        done = index + 1
        frame = frames.get(ref_number)
        if frame is not None and reading.frames_left > 0:
            reading.frames_left -= 1
            result += await _read_frame(reading, frame, depth + flat[3 * index] + 1)
        elif frame is not None:
            reading.unread += 1
    return result + lines[done:]


async def _read_frame(reading: _Reading, frame: Frame, depth: int) -> list[str]:
    try:
        document = await reading.tab.document(frame.id, FRAME_SECONDS)
        return await _read_lines(reading, document, depth, None)
    except ToolError as error:
        if error.code not in (PAGE_HUNG, STALE_REF):
            raise
        return [f"{' ' * depth}(this frame does not answer)"]
