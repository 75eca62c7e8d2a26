"""The stage tools that act on pages."""

from typing import Annotated, Any, Literal

from holdfast.builtin.stage import actions
from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.codes import (
    NO_ELEMENT,
)
from holdfast.builtin.stage.files import FILE_THREADS
from holdfast.builtin.stage.limits import ACTION_SECONDS, SETTLE_SECONDS
from holdfast.builtin.stage.tab import Tab
from holdfast.builtin.stage.tools.base import (
    Ref,
    Seconds,
    StageTools,
    TabId,
)
from holdfast.model import codes
from holdfast.toolkit import Call, Meta, ToolError


class ActingTools(StageTools):
    """Tools for the mouse, keys, fields and uploads."""

    async def click(
        self,
        call: Call,
        ref: Ref,
        button: Literal["left", "right", "middle"] = "left",
        double: bool = False,  # noqa: FBT001, FBT002 - an argument of the tool
        modifiers: Annotated[list[str], "Such as Control.", Meta(max_length=4)] = [],  # noqa: B006
        timeout: Seconds = ACTION_SECONDS,
    ) -> dict[str, Any]:
        """Click, once the element is visible, still, enabled and not covered."""
        stage, _, _ = self._owners.element(call, ref)

        async def act(tab: Tab, ref_number: int) -> None:
            target = await actions.wait_until_actionable(tab, ref_number, enabled=True, timeout=timeout)
            begun = stage.downloads.count
            await actions.click(tab, target, button=button, count=2 if double else 1, modifiers=modifiers)
            if target.is_download and button == "left" and not stage.is_attached:
                # The browser does not report a download before its server answers.
                has_begun = await tab.until(
                    lambda: stage.downloads.count > begun or tab.is_over, SETTLE_SECONDS
                )
                if not has_begun:
                    stage.notices.add("no download has begun yet: downloads will list it", "")

        return await self._act(call, ref, act)

    async def hover(self, call: Call, ref: Ref) -> dict[str, Any]:
        """Move the mouse over an element."""

        async def act(tab: Tab, ref_number: int) -> None:
            await actions.hover(
                tab,
                await actions.wait_until_actionable(tab, ref_number, enabled=False, timeout=ACTION_SECONDS),
            )

        return await self._act(call, ref, act)

    async def drag(
        self,
        call: Call,
        ref: Ref,
        to: Ref,
    ) -> dict[str, Any]:
        """Drag an element onto another one."""
        _, target_tab, target_ref_number = self._owners.element(call, to)

        async def act(tab: Tab, ref_number: int) -> None:
            if target_tab is not tab:
                raise ToolError(NO_ELEMENT, f"{to} is in another tab.")
            await actions.wait_until_actionable(tab, target_ref_number, enabled=False, timeout=ACTION_SECONDS)
            source = await actions.wait_until_actionable(
                tab, ref_number, enabled=True, timeout=ACTION_SECONDS
            )
            await actions.drag(tab, source, target_ref_number, ACTION_SECONDS)

        return await self._act(call, ref, act)

    async def fill(
        self,
        call: Call,
        ref: Ref,
        value: Annotated[str | bool | list[str], "Text; true or false for a box; options of a list."],
        timeout: Seconds = ACTION_SECONDS,
    ) -> dict[str, Any]:
        """Set a field: replace its text, check a box, choose options."""

        async def act(tab: Tab, ref_number: int) -> None:
            await actions.fill(tab, ref_number, value, timeout)

        return await self._act(call, ref, act)

    async def type(
        self,
        call: Call,
        text: Annotated[str, Meta(max_length=20_000)],
        ref: Annotated[str, "Else where the focus is."] = "",
        submit: Annotated[bool, "Then press Enter."] = False,  # noqa: FBT002 - an argument of the tool
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Type a text key by key, after what is there."""

        async def act(tab: Tab, ref_number: int | None) -> None:
            if ref_number is not None:
                await actions.focus(tab, ref_number, ACTION_SECONDS, caret="end")
            await actions.type_text(tab, text)
            if submit:
                await actions.press(tab, "Enter")

        return await self._act(call, ref, act, tab)

    async def press(
        self,
        call: Call,
        keys: Annotated[str, "Such as Enter, Control+A.", Meta(max_length=60)],
        ref: Annotated[str, "Else where the focus is."] = "",
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Press keys together; tells if the focus moves."""
        before = ""

        async def act(tab: Tab, ref_number: int | None) -> None:
            nonlocal before
            if ref_number is not None:
                await actions.focus(tab, ref_number, ACTION_SECONDS, caret="kept")
            before = await _focused_ref(tab)
            await actions.press(tab, keys)

        answer = await self._act(call, ref, act, tab)
        _, found_tab, _ = self._target(call, ref, tab)
        async with found_tab.lock:
            after = await _focused_ref(found_tab)
        return {**answer, "focus": after} if after not in ("", before) else answer

    async def scroll(
        self,
        call: Call,
        ref: Annotated[str, "Scroll to it; with down or right: in it."] = "",
        down: Annotated[int, "Pixels; negative: up.", Meta(ge=-100_000, le=100_000)] = 0,
        right: Annotated[int, Meta(ge=-100_000, le=100_000)] = 0,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Scroll to an element, or by a distance."""

        async def act(tab: Tab, ref_number: int | None) -> None:
            target = (
                await actions.wait_until_actionable(tab, ref_number, enabled=False, timeout=ACTION_SECONDS)
                if ref_number is not None
                else None
            )
            if down or right:
                await actions.scroll(tab, target, right, down)

        return await self._act(call, ref, act, tab)

    async def upload(
        self,
        call: Call,
        ref: Ref,
        paths: Annotated[list[str], "Files of the session.", Meta(min_length=1, max_length=20)],
    ) -> dict[str, Any]:
        """Give files to a file field."""
        stage, _, _ = self._owners.element(call, ref)
        if stage.browser.process is None:
            raise ToolError(
                codes.DENIED,
                "An attached browser gets no files from the session. Ask the user to choose them.",
            )
        files = await self._session_files(call)
        browser_folder = stage.browser.process.folder

        async def act(tab: Tab, ref_number: int) -> None:
            document = tab.find_ref(ref_number)
            field = await tab.run(document, "field", ref=ref_number)
            if field["kind"] == "gone":
                raise await actions.stale_error(tab, ref_number)
            if field["kind"] != "file":
                raise ToolError(actions.NO_EFFECT, f"{ref} is not a file field.")
            if len(paths) > 1 and not field["multiple"]:
                raise ToolError(codes.BAD_ARGUMENT, f"{ref} takes one file.")
            stage.upload_count += 1
            folder = f"uploads/{stage.id}-{stage.upload_count}"
            copies = await FILE_THREADS.run(files.copy_in, paths, browser_folder, folder)
            _, handle = await tab.element(ref_number)
            await tab.send(cdp.DomSetFileInputFiles(files=copies, object_id=handle), document.session)

        return await self._act(call, ref, act)


async def _focused_ref(tab: Tab) -> str:
    """Return the ref of the element that has the focus; empty if none has, or if the page is being loaded."""
    document = tab.find_document(tab.target_id)
    if document is None or tab.is_over or tab.is_waiting:
        return ""
    try:
        focused = await tab.run(document, "focusedRef", next=tab.next_ref)
    except ToolError:  # the action itself reports what is wrong
        return ""
    tab.claim(document, focused["next"])
    return tab.ref(focused["ref"]) if focused["ref"] >= 0 else ""
