"""Read pages."""

from typing import Annotated, Any, Literal

from holdfast.builtin.stage import actions, answers
from holdfast.builtin.stage.answers import page_answer
from holdfast.builtin.stage.fence import one_line, plain_text
from holdfast.builtin.stage.read_page import find_lines, take_snapshot
from holdfast.builtin.stage.tools.family import (
    Budget,
    OptionalRef,
    TabId,
    ToolFamily,
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


class ReadingTools(ToolFamily):
    """Show a page, find elements in it, read its texts."""

    async def snapshot(
        self,
        call: Call,
        within: OptionalRef = "",
        since: Annotated[str, "An earlier snapshot, such as p3: answer only with what changed."] = "",
        cursor: Annotated[str, "Continue where an answer left out lines."] = "",
        budget: Budget = 3000,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Show the page as an outline: roles, names, states and texts, with refs for the other tools."""
        if within:
            stage, found, number = self._owners.element(call, within)
        else:
            (stage, found), number = self._owners.tab(call, tab), None
        async with found.lock:
            if cursor:
                return answers.continue_snapshot(stage, found, cursor, budget)
            earlier = found.snapshots.get(since)
            taken = await take_snapshot(found, number)
            if since and earlier is not None and earlier.document == taken.document:
                return answers.changes_answer(stage, found, earlier, taken, budget)
            reason = {"full": "that snapshot is of another page, or too old"} if since else {}
            return await answers.snapshot_answer(stage, found, taken, budget, **reason)

    async def find(
        self,
        call: Call,
        text: Annotated[str, "Part of the text or name, in any case.", Meta(max_length=500)] = "",
        role: Annotated[str, "Such as button, link, textbox, heading, text."] = "",
        within: OptionalRef = "",
        limit: Annotated[int, Meta(ge=1, le=200)] = 20,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Find elements by text or role, in all frames, each with a ref."""
        if not text and not role:
            raise ToolError(codes.BAD_ARGUMENT, "Pass text or role.")
        stage, found, number = self._target(call, within, tab)
        async with found.lock:
            lines, more = await find_lines(
                found, text=text, roles=[role.lower()] if role else None, within=number, limit=limit
            )
            facts: dict[str, Any] = {"found": len(lines) + more}
            return page_answer(stage, lines, 3000, tab=found.id, **facts)

    async def read(
        self,
        call: Call,
        ref: OptionalRef = "",
        attributes: Annotated[list[str], "Attributes to read, such as href.", Meta(max_length=20)] = [],  # noqa: B006
        start: Annotated[int, "The first character.", Meta(ge=0)] = 0,
        budget: Budget = 2000,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Read the whole text of an element or of the page, as a person sees it."""
        stage, found, number = self._target(call, ref, tab)
        async with found.lock:
            document = found.find_ref(number) if number is not None else await found.document()
            limit = (budget - 100) * 3
            result = await found.run(
                document, "read", ref=number, attributes=attributes, limit=limit, **{"from": start}
            )
            if result.get("gone"):
                raise await actions.stale(found, number or 0)
            lines = plain_text(result["text"]).split("\n")
            lines += [f"{name}: {one_line(str(value))}" for name, value in result["attributes"].items()]
            end = start + len(result["text"])
            facts: dict[str, Any] = {"characters": result["length"]}
            if end < result["length"]:
                facts |= {"left_out": result["length"] - end, "next_start": end}
            return page_answer(stage, lines, budget * 2, tab=found.id, **facts)

    async def elements(
        self,
        call: Call,
        kind: Literal["links", "buttons", "fields", "headings", "images"],
        within: OptionalRef = "",
        limit: Annotated[int, Meta(ge=1, le=500)] = 50,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """List all elements of one kind with their address, place and size."""
        stage, found, number = self._target(call, within, tab)
        async with found.lock:
            lines, more = await find_lines(
                found, text="", roles=_KINDS[kind], within=number, limit=limit, details=True
            )
            return page_answer(stage, lines, 5000, tab=found.id, found=len(lines) + more)
