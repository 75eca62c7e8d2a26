"""Waits until the consequences of an action are visible: pages that it loads, requests that it starts, changes of the page."""

from dataclasses import dataclass

from holdfast.builtin.stage.codes import PAGE_HUNG, STALE_REF
from holdfast.builtin.stage.limits import SETTLE_SECONDS
from holdfast.builtin.stage.tab import Tab
from holdfast.toolkit import ToolError

# The types of requests that `settle` waits for. It does not wait for others, such as images.
_WAITED_TYPES = frozenset({"Document", "XHR", "Fetch", "Script"})
_QUIET_MS = 25  # a page is quiet if it has not changed for this time
_LONGEST_MS = 400  # how long to wait for a page that keeps changing


@dataclass(frozen=True, slots=True, kw_only=True)
class TabState:
    """How many pages a tab had begun to load, and which requests had not ended."""

    navigations: int
    in_flight: frozenset[str] = frozenset()
    """The ids of the requests."""


def tab_state(tab: Tab) -> TabState:
    """Return the state of a tab before an action. Pass it to `settle` after the action."""
    return TabState(navigations=tab.navigations, in_flight=frozenset(tab.log.in_flight))


async def settle(tab: Tab, before: TabState, load_seconds: float) -> None:
    """Wait until what an action started has ended. `before` is the state before the action. Loading a page may take `load_seconds`."""
    await _wait_until_quiet(tab)
    if tab.navigations > before.navigations:
        await tab.until(lambda: not tab.is_loading or tab.is_over, load_seconds)
        await _wait_until_quiet(tab)
        return

    def is_idle() -> bool:
        new = (
            request for request_id, request in tab.log.in_flight.items() if request_id not in before.in_flight
        )
        return not any(request.kind in _WAITED_TYPES for request in new) or tab.is_over

    if not is_idle():
        await tab.until(is_idle, SETTLE_SECONDS)
        await _wait_until_quiet(tab)


async def _wait_until_quiet(tab: Tab) -> None:
    """Wait until the page has not changed for a moment."""
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
