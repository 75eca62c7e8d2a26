"""The stage tools that wait for pages, and check them."""

from typing import Annotated, Any

from holdfast.builtin.stage.answers import page_answer
from holdfast.builtin.stage.codes import (
    NOT_YET,
)
from holdfast.builtin.stage.conditions import Condition, State, wait_until
from holdfast.builtin.stage.settle import TabState, settle
from holdfast.builtin.stage.tools.base import (
    Seconds,
    StageTools,
    TabId,
    with_single_spaces,
)
from holdfast.model import codes
from holdfast.toolkit import Call, ToolError


class WaitingTools(StageTools):
    """The tools `wait` and `expect`."""

    async def wait(  # noqa: PLR0913, PLR0917 - the arguments of the tool
        self,
        call: Call,
        text: Annotated[str, "Appears on the page, or in the ref."] = "",
        not_text: Annotated[str, "Disappears."] = "",
        ref: str = "",
        state: State | None = None,
        url: Annotated[str, "Part of it, or a pattern with *."] = "",
        timeout: Seconds = 10.0,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Wait until all conditions are true; without any, until the page is loaded and quiet."""
        _check_has_ref(ref, state=state)
        stage, found_tab, ref_number = self._target(call, ref, tab)
        condition = Condition(
            text=with_single_spaces(text),
            not_text=with_single_spaces(not_text),
            ref_number=ref_number,
            state=state,
            url=url,
        )
        async with found_tab.lock:
            if condition == Condition():
                is_loaded = await found_tab.until(
                    lambda: not found_tab.is_loading or found_tab.is_over, timeout
                )
                await settle(found_tab, TabState(navigations=found_tab.navigations), timeout)
                if not is_loaded:
                    raise ToolError(NOT_YET, f"The page is still loading after {timeout:g} s.")
            else:
                await wait_until(found_tab, condition, timeout)
            return await self._changes(stage, found_tab)

    async def expect(  # noqa: PLR0913, PLR0917 - the arguments of the tool
        self,
        call: Call,
        ref: str = "",
        text: str = "",
        not_text: str = "",
        state: State | None = None,
        value: Annotated[str | None, "Of a field, exactly."] = None,
        url: str = "",
        title: str = "",
        timeout: Seconds = 5.0,
        tab: TabId = "",
    ) -> dict[str, Any]:
        """Check what a test expects, as wait does; fails with expected and actual."""
        _check_has_ref(ref, state=state, value=value)
        stage, found_tab, ref_number = self._target(call, ref, tab)
        condition = Condition(
            text=with_single_spaces(text),
            not_text=with_single_spaces(not_text),
            ref_number=ref_number,
            state=state,
            value=value,
            url=url,
            title=title,
        )
        if condition == Condition(ref_number=ref_number):
            raise ToolError(
                codes.BAD_ARGUMENT, "Pass at least one of: text, not_text, state, value, url, title."
            )
        async with found_tab.lock:
            waited = await wait_until(found_tab, condition, timeout)
        return page_answer(stage, [], 500, tab=found_tab.id, passed=True, seconds=round(waited, 2))


def _check_has_ref(ref: str, **conditions: str | None) -> None:
    """Raise if a condition on an element is given without the element: the condition would be ignored."""
    given = [name for name, condition in conditions.items() if condition is not None]
    if given and not ref:
        raise ToolError(codes.BAD_ARGUMENT, f"{given[0]} is about an element. Pass its ref, too.")
