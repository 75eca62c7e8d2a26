"""Load pages: by address, back, forward, and again."""

import asyncio
import contextlib
from typing import Any

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import CdpError, ConnectionLostError, NoAnswerError
from holdfast.builtin.stage.codes import LOAD_FAILED, PAGE_CRASHED, URL_DENIED, browser_failures
from holdfast.builtin.stage.fence import fence, one_line
from holdfast.builtin.stage.tab import Tab
from holdfast.builtin.stage.url_rules import UNSAFE_REDIRECT, check_url
from holdfast.sandbox.bwrap.egress_proxy import VERDICT_HEADER
from holdfast.toolkit import ToolError

_STOP_SECONDS = 2.0
_PATIENCE_SECONDS = 5.0  # a page that is left may take so long; then its scripts are stopped
_REASONS = {
    "net::ERR_TUNNEL_CONNECTION_FAILED": "the server cannot be reached, or this session may not reach it",
    "net::ERR_INVALID_AUTH_CREDENTIALS": "it asks for a user name and a password (https://name:password@host/ has them)",
}


async def go(tab: Tab, url: str, timeout: float) -> str:
    """Load an address, or go `back`, `forward` or `reload`. Return `loaded`, or `loading` if it takes longer."""
    tab.is_leaving = True
    try:
        if tab.is_hung or tab.has_dialog_flood:
            await _stop_scripts(tab)
        first = tab.log.requests.count
        match url:
            case "reload":
                await _send(tab, cdp.PageReload(), timeout)
            case "back" | "forward":
                await _go_in_history(tab, -1 if url == "back" else 1, timeout)
            case _:
                await _navigate(tab, check_url(url), timeout)
        return await _wait(tab, first, timeout)
    finally:
        tab.is_leaving = False


async def _stop_scripts(tab: Tab) -> None:
    """End the scripts of a page that is busy or opens dialogs without end: it would delay the next page for ever."""
    disable = cdp.EmulationSetScriptExecutionDisabled(value=True)
    enable = cdp.EmulationSetScriptExecutionDisabled(value=False)
    with contextlib.suppress(CdpError, ConnectionLostError):
        tab.connection.post(cdp.RuntimeTerminateExecution(), tab.session)
        try:
            await tab.connection.send(disable, tab.session, _STOP_SECONDS)
            await tab.connection.send(cdp.PageNavigate(url="about:blank"), tab.session, _STOP_SECONDS)
            await tab.connection.send(enable, tab.session, _STOP_SECONDS)
        except NoAnswerError:  # nothing else ends them
            tab.connection.post(enable, tab.session)
            tab.connection.post(cdp.PageCrash(), tab.session)
            await tab.until(lambda: tab.is_over, _STOP_SECONDS)
    tab.is_hung = False


async def _navigate(tab: Tab, url: str, timeout: float) -> None:
    tab.is_loading = True
    result = await _send(tab, cdp.PageNavigate(url=url), timeout)
    if result.error_text and result.error_text != "net::ERR_ABORTED":
        # The browser's own page about the failure replaces the tab's page now.
        await tab.until(lambda: tab.loader_id == result.loader_id or tab.is_over, _PATIENCE_SECONDS)
        tab.is_loading = False
        if result.error_text == UNSAFE_REDIRECT:
            raise ToolError(
                URL_DENIED,
                "The server redirects to an address that is neither http nor https.",
                page=fence(one_line(url)),
            )
        plain = result.error_text.removeprefix("net::").lower().replace("_", " ")
        why = _REASONS.get(result.error_text, plain)
        raise ToolError(LOAD_FAILED, f"The page could not be loaded: {why}.", page=fence(one_line(url)))
    if result.loader_id is None:  # the same document, or a download
        tab.is_loading = False


async def _go_in_history(tab: Tab, step: int, timeout: float) -> None:
    history = await _send(tab, cdp.PageGetNavigationHistory(), timeout)
    index = history.current_index + step
    if not 0 <= index < len(history.entries):
        raise ToolError(LOAD_FAILED, f"There is no page to go {'back' if step < 0 else 'forward'} to.")
    check_url(history.entries[index].url)
    await _start(tab, cdp.PageNavigateToHistoryEntry(entry_id=history.entries[index].id), timeout)


async def _start(tab: Tab, command: cdp.Command[Any], timeout: float) -> None:
    """Send a command that is answered before the tab has another page, and wait until it has."""
    before = tab.commits
    await _send(tab, command, timeout)
    await tab.until(lambda: tab.commits > before or tab.is_over, timeout)


async def _send(tab: Tab, command: cdp.Command[cdp.R], timeout: float) -> cdp.R:
    if tab.is_closed:
        tab.check()
    with browser_failures():
        try:
            try:
                return await tab.connection.send(command, tab.session, min(timeout, _PATIENCE_SECONDS))
            except NoAnswerError:
                if tab.is_over:
                    raise
                await _stop_scripts(tab)
                return await tab.connection.send(command, tab.session, timeout)
        except CdpError as error:
            raise ToolError(LOAD_FAILED, f"The page could not be loaded: {error}.") from None


async def _wait(tab: Tab, first: int, timeout: float) -> str:
    await asyncio.sleep(0)
    started = await tab.until(lambda: tab.find_document(tab.target_id) is not None or tab.is_closed, timeout)
    loaded = await tab.until(lambda: not tab.is_loading or tab.is_over, timeout)
    if tab.is_crashed:
        raise ToolError(PAGE_CRASHED, "The page crashed while it was loaded.")
    tab.check()
    for _, request in tab.log.requests.after(first):
        headers = {name.lower(): value for name, value in request.response_headers.items()}
        if request.kind != "Document" or request.frame_id != tab.target_id or VERDICT_HEADER not in headers:
            continue
        shown = fence(one_line(request.url))
        if headers[VERDICT_HEADER] == "refused":
            raise ToolError(URL_DENIED, "This session may not reach that address.", page=shown)
        raise ToolError(LOAD_FAILED, "No server answers at that address.", page=shown)
    return "loaded" if loaded and started else "loading"
