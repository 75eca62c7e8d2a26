"""Wait for pages, and check them."""

from typing import Annotated, Any

from holdfast.builtin.stage.answers import page_answer
from holdfast.builtin.stage.codes import (
    NOT_YET,
)
from holdfast.builtin.stage.conditions import Condition, State, wait_until
from holdfast.builtin.stage.settle import TabState, settle
from holdfast.builtin.stage.tools.family import (
    Seconds,
    TabId,
    ToolFamily,
    as_shown,
)
from holdfast.model import codes
from holdfast.toolkit import Call, ToolError


class WaitingTools(ToolFamily):
    """Wait and expect."""

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
        stage, found, number = self._target(call, ref, tab)
        condition = Condition(
            text=as_shown(text), not_text=as_shown(not_text), number=number, state=state, url=url
        )
        async with found.lock:
            if condition == Condition():
                is_loaded = await found.until(lambda: not found.is_loading or found.is_over, timeout)
                await settle(found, TabState(navigations=found.navigations), timeout)
                if not is_loaded:
                    raise ToolError(NOT_YET, f"The page is still loading after {timeout:g} s.")
            else:
                await wait_until(found, condition, timeout)
            return await self._changes(stage, found)

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
        stage, found, number = self._target(call, ref, tab)
        condition = Condition(
            text=as_shown(text),
            not_text=as_shown(not_text),
            number=number,
            state=state,
            value=value,
            url=url,
            title=title,
        )
        if condition == Condition(number=number):
            raise ToolError(
                codes.BAD_ARGUMENT, "Pass at least one of: text, not_text, state, value, url, title."
            )
        async with found.lock:
            waited = await wait_until(found, condition, timeout)
        return page_answer(stage, [], 500, tab=found.id, passed=True, seconds=round(waited, 2))


def _check_has_ref(ref: str, **conditions: str | None) -> None:
    """Raise if a condition on an element is given without the element: it would count as true."""
    given = [name for name, condition in conditions.items() if condition is not None]
    if given and not ref:
        raise ToolError(codes.BAD_ARGUMENT, f"{given[0]} is about an element. Pass its ref, too.")
