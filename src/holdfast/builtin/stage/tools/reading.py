"""The stage tools that read pages."""

from typing import Annotated, Any, Literal

from holdfast.builtin.stage import actions, answers
from holdfast.builtin.stage.answers import TextPart, page_answer, text_answer
from holdfast.builtin.stage.fence import one_line
from holdfast.builtin.stage.read_page import find_lines, find_root
from holdfast.builtin.stage.take_snapshot import take_snapshot
from holdfast.builtin.stage.tools.base import (
    Budget,
    OptionalRef,
    StageTools,
    TabId,
    with_single_spaces,
)
from holdfast.model import codes
from holdfast.toolkit import Call, Meta, ToolError

_KINDS = {
    "links": ["link"],
    "buttons": ["button"],
    "fields": [
        "textbox",
        "searchbox",
        "checkbox",
        "radio",
        "combobox",
        "listbox",
        "slider",
        "spinbutton",
        "switch",
        "file",
    ],
    "headings": ["heading"],
    "images": ["img"],
}


class ReadingTools(StageTools):
    """Tools that show a page, find elements in it, and read its texts."""

    async def snapshot(
        self,
        call: Call,
        within: OptionalRef = "",
        since: Annotated[str, "Such as p3: only what changed since."] = "",
        cursor: Annotated[str, "From any answer: its next lines."] = "",
        budget: Budget = 3000,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Show the page as an outline with refs, in budget tokens."""
        if within:
            stage, found_tab, ref_number = self._owners.element(call, within)
        else:
            (stage, found_tab), ref_number = self._owners.tab(call, tab), None
        async with found_tab.lock:
            if cursor:
                return answers.continue_answer(stage, found_tab, cursor, budget)
            earlier = found_tab.snapshots.get(since)
            taken = await take_snapshot(found_tab, ref_number)
            if since and earlier is not None and earlier.document == taken.document:
                return answers.changes_answer(stage, found_tab, earlier, taken, budget)
            reason = {"full": "that snapshot is of another page, or too old"} if since else {}
            return answers.snapshot_answer(stage, found_tab, taken, budget, **reason)

    async def find(
        self,
        call: Call,
        text: Annotated[str, Meta(max_length=500)] = "",
        role: Annotated[str, "Such as button, textbox, text."] = "",
        within: OptionalRef = "",
        limit: Annotated[int, Meta(ge=1, le=200)] = 20,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Find elements by part of their text, by role, or by both."""
        text = with_single_spaces(text)
        if not text and not role:
            raise ToolError(codes.BAD_ARGUMENT, "Pass text or role.")
        stage, found_tab, ref_number = self._target(call, within, tab)
        async with found_tab.lock:
            roles = [role.lower()] if role else None
            lines, unread = await find_lines(found_tab, text=text, roles=roles, within=ref_number)
            return page_answer(
                stage, lines, 3000, limit, tab=found_tab.id, found=len(lines) or "nothing", unread=unread
            )

    async def read(
        self,
        call: Call,
        ref: OptionalRef = "",
        attributes: Annotated[list[str], Meta(max_length=20)] = [],  # noqa: B006
        start: Annotated[int, Meta(ge=0)] = 0,
        budget: Budget = 2000,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Read the whole text of an element or the page, from character start on."""
        stage, found_tab, ref_number = self._target(call, ref, tab)
        async with found_tab.lock:
            document = (
                found_tab.find_ref(ref_number) if ref_number is not None else await found_tab.document()
            )
            limit = budget * 4
            options: dict[str, Any] = {"attributes": attributes, "limit": limit, "from": start}
            result = await found_tab.run(document, "read", ref=ref_number, **options)
            if ref_number is not None and not result.get("gone") and not result["text"]:
                inner, root = await find_root(found_tab, ref_number)
                if root is None:  # the element is a frame
                    read = await found_tab.run(inner, "read", limit=limit, **{"from": start})
                    result |= {"text": read["text"], "length": read["length"]}
            if result.get("gone"):
                raise await actions.stale_error(found_tab, ref_number or 0)
            values = [f"{name}: {one_line(str(value))}" for name, value in result["attributes"].items()]
            return text_answer(
                stage, TextPart(result["text"], start, result["length"]), values, budget, tab=found_tab.id
            )

    async def elements(
        self,
        call: Call,
        kind: Literal["links", "buttons", "fields", "headings", "images"],
        within: OptionalRef = "",
        limit: Annotated[int, Meta(ge=1, le=500)] = 50,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """List elements with address, place and size."""
        stage, found_tab, ref_number = self._target(call, within, tab)
        async with found_tab.lock:
            lines, unread = await find_lines(
                found_tab, text="", roles=_KINDS[kind], within=ref_number, details=True
            )
            return page_answer(
                stage, lines, 5000, limit, tab=found_tab.id, found=len(lines) or "nothing", unread=unread
            )
