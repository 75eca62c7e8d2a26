"""Wait until the consequences of an action are visible: pages that it loads, requests that it starts, changes of the page."""

from dataclasses import dataclass

from holdfast.builtin.stage.codes import PAGE_HUNG, STALE_REF
from holdfast.builtin.stage.limits import SETTLE_SECONDS
from holdfast.builtin.stage.tab import Tab
from holdfast.toolkit import ToolError

_WAITED_TYPES = frozenset({"Document", "XHR", "Fetch", "Script"})
_QUIET_MS = 25
_LONGEST_MS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class TabState:
    """How often a tab has loaded another page, and the requests that have not ended."""

    navigations: int
    in_flight: frozenset[str] = frozenset()


def tab_state(tab: Tab) -> TabState:
    """The state of a tab before an action, for `settle` after it."""
    return TabState(navigations=tab.navigations, in_flight=frozenset(tab.log.in_flight))


async def settle(tab: Tab, before: TabState, load_seconds: float) -> None:
    """Wait for what has happened since `before`. A page that is loaded may take `load_seconds`."""
    await _quiet(tab)
    if tab.navigations > before.navigations:
        await tab.until(lambda: not tab.is_loading or tab.is_over, load_seconds)
        await _quiet(tab)
        return

    def is_idle() -> bool:
        new = (
            request for request_id, request in tab.log.in_flight.items() if request_id not in before.in_flight
        )
        return not any(request.kind in _WAITED_TYPES for request in new) or tab.is_over

    if not is_idle():
        await tab.until(is_idle, SETTLE_SECONDS)
        await _quiet(tab)


async def _quiet(tab: Tab) -> None:
    document = tab.find_document(tab.target_id)
    if document is None or tab.is_over:
        return
    try:
        await tab.run(document, "settle", timeout=SETTLE_SECONDS, quiet=_QUIET_MS, ms=_LONGEST_MS)
    except ToolError as error:
        if error.code is PAGE_HUNG:
            return
        if error.code is not STALE_REF:
            raise
