"""The last check of a click: if the press does not hit the expected element, it is stopped before the page sees it.

Documents are *armed* while the page script in them watches for the press.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.builtin.stage.codes import PAGE_HUNG, STALE_REF, TAB_GONE
from holdfast.builtin.stage.frames import Document
from holdfast.builtin.stage.limits import SCRIPT_SECONDS
from holdfast.builtin.stage.tab import Tab
from holdfast.toolkit import ToolError

_FRAME_SECONDS = 1.0  # short, because a frame that does not answer must not stop clicks outside of it
_FAILED = (STALE_REF, TAB_GONE, PAGE_HUNG)


@dataclass(frozen=True, slots=True)
class Press:
    """What became of a press."""

    outcome: Literal["hit", "missed", "stopped"]
    """Whether it hit the expected element, reached none of the armed documents, or was stopped."""
    cover: dict[str, Any] | None = None
    """If it was stopped: the element that it would have hit."""


async def arm(tab: Tab, document: Document, ref_number: int) -> list[Document] | None:
    """Watch presses in all documents of a tab. Return the documents, the element's first; None if the element is gone.

    A press may hit the element and frames inside it, but not a frame that the page has moved over the element.
    """
    children = tab.tree.children(document.frame_id)
    owners = await asyncio.gather(*(tab.frame_element(frame) for frame in children))
    ref_numbers = [-1 if owner is None else owner[1] for owner in owners]
    frames_in_element = await tab.run(document, "arm", ref=ref_number, frames=ref_numbers)
    if frames_in_element is None:
        return None
    open_frames = {
        frame.id for frame, number in zip(children, ref_numbers, strict=True) if number in frames_in_element
    }
    others: list[Document] = []
    for frame_id in list(tab.frames):
        other = tab.find_document(frame_id)
        if other is not None and other is not document:
            others.append(other)
    await asyncio.gather(
        *(
            _call(
                tab, other, "armFrame", _FRAME_SECONDS, open=tab.tree.is_inside(other.frame_id, open_frames)
            )
            for other in others
        )
    )
    return [document, *others]


async def finish_press(tab: Tab, armed: list[Document], *, keep: bool = False) -> Press:
    """Return what became of the press. Stop watching presses, unless `keep` is true."""
    document, *others = armed
    first = await _call(tab, document, "disarm", SCRIPT_SECONDS, next=tab.next_ref, keep=keep)
    results = [first]
    for other in others:  # one after another: each of them may give numbers to elements
        results.append(await _call(tab, other, "disarm", _FRAME_SECONDS, next=tab.next_ref, keep=keep))
    for result in results:
        if result is not None and result["cover"] is not None:
            return Press("stopped", result["cover"])
    # If the document is gone, the click loaded another page.
    is_hit = first is None or any(result is not None and result["hit"] for result in results)
    return Press("hit" if is_hit else "missed")


async def _call(
    tab: Tab, document: Document, function: str, timeout: float, **options: Any
) -> dict[str, Any] | None:
    """Call a function of the page script. Returns None if the document is gone or does not answer."""
    try:
        result = await tab.run(document, function, timeout, **options)
    except (ToolError, RuntimeError) as error:
        if isinstance(error, ToolError) and error.code not in _FAILED:
            raise
        return None
    if result is not None:
        tab.claim(document, result["next"])
    return result
