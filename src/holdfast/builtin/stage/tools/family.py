"""What all families of tools share: their arguments, the caller's tabs and elements, and answers with what changed."""

from collections.abc import Callable
from typing import Annotated, Any

from holdfast.builtin.stage import actions, answers
from holdfast.builtin.stage.answers import page_answer
from holdfast.builtin.stage.browser import Stage
from holdfast.builtin.stage.codes import STALE_REF
from holdfast.builtin.stage.files import SessionFiles
from holdfast.builtin.stage.launch import LaunchOptions
from holdfast.builtin.stage.limits import LOAD_SECONDS
from holdfast.builtin.stage.owners import Owners
from holdfast.builtin.stage.read_page import take_snapshot
from holdfast.builtin.stage.tab import Tab
from holdfast.toolkit import Call, Meta, ToolError

Ref = Annotated[str, "A ref from a snapshot, such as e12."]
OptionalRef = Annotated[str, "A ref; without it, the whole page."]
TabId = Annotated[str, "A tab such as t2; by default the last one used."]
Seconds = Annotated[float, Meta(gt=0, le=60)]
Budget = Annotated[int, "Tokens that the answer may cost.", Meta(ge=200, le=50_000)]

PAGE_BUDGET = 1500
_ACTION_BUDGET = 500


class ToolFamily:
    """The handlers of some tools."""

    def __init__(self, owners: Owners, options: LaunchOptions, files: SessionFiles) -> None:
        self._owners = owners
        self._options = options
        self._files = files

    def _target(self, call: Call, ref: str, tab: str) -> tuple[Stage, Tab, int | None]:
        if ref:
            return self._owners.element(call, ref)
        stage, found = self._owners.tab(call, tab)
        return stage, found, None

    async def _act(
        self, call: Call, ref: str, act: Callable[[Tab, Any], Any], tab: str = ""
    ) -> dict[str, Any]:
        stage, found, number = self._target(call, ref, tab)
        async with found.lock:
            if not found.snapshots and not found.is_over:
                await take_snapshot(found)
            before = found.mark()
            if number is not None:
                try:
                    found.find_ref(number)
                except ToolError as error:
                    if error.code is STALE_REF:
                        raise await actions.stale(found, number) from None
                    raise
            await act(found, number)
            await found.settle(before, LOAD_SECONDS)
            return await self._changes(stage, found)

    async def _changes(self, stage: Stage, tab: Tab) -> dict[str, Any]:
        """What changed in a tab since the last snapshot; the page itself if it is another one."""
        if tab.is_closed:
            return page_answer(stage, [], _ACTION_BUDGET, closed=tab.id, tabs=list(stage.tabs))
        earlier = next((kept for kept in reversed(tab.snapshots.values()) if not kept.is_part), None)
        taken = await take_snapshot(tab)
        if earlier is not None and earlier.document == taken.document:
            return answers.changes_answer(stage, tab, earlier, taken, _ACTION_BUDGET)
        return await answers.snapshot_answer(stage, tab, taken, PAGE_BUDGET)

    async def _show(self, stage: Stage, tab: Tab, budget: int, /, **facts: Any) -> dict[str, Any]:
        if facts.get("loaded") == "loaded":
            del facts["loaded"]
        return await answers.snapshot_answer(stage, tab, await take_snapshot(tab), budget, **facts)
