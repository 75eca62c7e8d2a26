"""Loads pages: by address, back, forward and reload."""

import asyncio
import contextlib
from time import monotonic
from typing import Any, Literal

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import CdpError, ConnectionLostError, NoAnswerError
from holdfast.builtin.stage.codes import LOAD_FAILED, PAGE_CRASHED, PAGE_HUNG, URL_DENIED, browser_failures
from holdfast.builtin.stage.fence import fence, one_line
from holdfast.builtin.stage.page_log import Request
from holdfast.builtin.stage.tab import Tab
from holdfast.builtin.stage.url_rules import UNSAFE_REDIRECT, check_url, without_credentials
from holdfast.sandbox.bwrap.egress_proxy import VERDICT_HEADER
from holdfast.toolkit import ToolError

_STOP_SECONDS = 2.0
_PATIENCE_SECONDS = 5.0  # if the old page takes longer to answer, its scripts are stopped
_REASONS = {
    "net::ERR_TUNNEL_CONNECTION_FAILED": "the server cannot be reached, or this session may not reach it",
    "net::ERR_INVALID_AUTH_CREDENTIALS": "its server asks for a user name and a password, which an address such as https://name:password@host/ contains",
}
_ABORTED = "net::ERR_ABORTED"
"""The error of a load that shows no page: a download, an answer without content, a redirect to another program."""
# How long after a page asked to open another program the browser may still show its question.
_QUESTION_SECONDS = 5.0
_STATUSES_WITHOUT_PAGE = (204, 205)
_EMPTY_PAGES = ("", "about:blank")


async def go(tab: Tab, url: str, timeout: float) -> str:
    """Load an address, or go `back`, `forward` or `reload`. Return `loaded`, or `loading` if it takes longer."""
    tab.is_leaving = True
    try:
        if tab.is_loading and not tab.is_over:
            # A page gets no commands while the tab waits for the next page.
            tab.connection.post(cdp.PageStopLoading(), tab.session)
        if tab.is_hung or tab.has_dialog_flood or not await _does_page_answer(tab):
            url = await _address(tab, url)  # read before `_stop_scripts` replaces the page by an empty one
            await _stop_scripts(tab)
        if tab.asked_for_program_at is not None and url not in ("back", "forward"):
            url = tab.url if url == "reload" else check_url(url)
            await _close_program_question(tab, tab.asked_for_program_at)
        last_request = tab.log.requests.count
        match url:
            case "reload":
                same_address = cdp.PageNavigate(url=tab.url or _EMPTY_PAGES[1])
                await _start(tab, cdp.PageReload(), timeout, if_stopped=same_address)
            case "back" | "forward":
                await _go_in_history(tab, url, timeout)
            case _:
                commits = tab.commits
                result = await _navigate(tab, check_url(url), timeout)
                if result is None:
                    return "loading"
                if result.error_text == _ABORTED and not result.is_download:
                    await _wait_until_loaded(tab, last_request, timeout)
                    if tab.commits == commits:
                        tab.asked_for_program_at = monotonic()
                        raise _denied_redirect(url)
        return await _wait_until_loaded(tab, last_request, timeout)
    finally:
        tab.is_leaving = False


async def _address(tab: Tab, url: str) -> str:
    """Return the address that `back`, `forward` or `reload` leads to; any other address as it is."""
    match url:
        case "reload":
            return tab.url or _EMPTY_PAGES[1]
        case "back" | "forward":
            return (await _history_entry(tab, url, _STOP_SECONDS)).url
        case _:
            return url


async def _close_program_question(tab: Tab, asked: float) -> None:
    """Close the browser's question whether to open another program. Only showing another site closes it."""
    if not tab.is_over:
        await _start(tab, cdp.PageNavigate(url="about:blank"), _STOP_SECONDS)
    if monotonic() - asked > _QUESTION_SECONDS:
        tab.asked_for_program_at = None


async def _does_page_answer(tab: Tab) -> bool:
    """Return whether the page answers. If not, its scripts must be stopped now: that is not possible while the next page is loaded."""
    if tab.is_over or tab.url in _EMPTY_PAGES:
        return True
    try:
        await tab.connection.send(cdp.RuntimeEvaluate(expression="1"), tab.session, _PATIENCE_SECONDS)
    except NoAnswerError:
        return tab.is_over
    except (CdpError, ConnectionLostError):  # the page is being replaced, or is gone
        return True
    return True


async def _stop_scripts(tab: Tab) -> None:
    """End the scripts of a page that is busy or keeps opening dialogs: they would block the next page. Leaves an empty page."""
    disable = cdp.EmulationSetScriptExecutionDisabled(value=True)
    enable = cdp.EmulationSetScriptExecutionDisabled(value=False)
    with contextlib.suppress(CdpError, ConnectionLostError):
        tab.connection.post(cdp.RuntimeTerminateExecution(), tab.session)
        try:
            await tab.connection.send(disable, tab.session, _STOP_SECONDS)
            await tab.connection.send(cdp.PageNavigate(url="about:blank"), tab.session, _STOP_SECONDS)
            await tab.connection.send(enable, tab.session, _STOP_SECONDS)
        except NoAnswerError:  # only ending the page's process ends the scripts
            tab.connection.post(enable, tab.session)
            tab.connection.post(cdp.PageCrash(), tab.session)
            await tab.until(lambda: tab.is_over, _STOP_SECONDS)
    tab.is_hung = False


async def _navigate(tab: Tab, url: str, timeout: float) -> cdp.PageNavigateResult | None:
    """Load an address. Returns None if its server has not answered in time."""
    tab.is_loading = True
    result = await _send(tab, cdp.PageNavigate(url=url), timeout)
    if result is None:
        return None
    if result.error_text and result.error_text != _ABORTED:
        # The browser's own page about the failure replaces the tab's page now.
        await tab.until(lambda: tab.loader_id == result.loader_id or tab.is_over, _PATIENCE_SECONDS)
        tab.is_loading = False
        if result.error_text == UNSAFE_REDIRECT:
            raise _denied_redirect(url)
        plain = result.error_text.removeprefix("net::ERR_").lower().replace("_", " ")
        why = _REASONS.get(result.error_text, plain)
        raise ToolError(LOAD_FAILED, f"The page could not be loaded: {why}.", page=_shown(url))
    if result.loader_id is None:  # the same document, or a download
        tab.is_loading = False
    return result


def _denied_redirect(url: str) -> ToolError:
    message = "The server redirects to an address that is neither http nor https."
    return ToolError(URL_DENIED, message, page=_shown(url))


async def _go_in_history(tab: Tab, direction: Literal["back", "forward"], timeout: float) -> None:
    entry = await _history_entry(tab, direction, timeout)
    command = cdp.PageNavigateToHistoryEntry(entry_id=entry.id)
    await _start(tab, command, timeout, if_stopped=cdp.PageNavigate(url=entry.url))


async def _history_entry(
    tab: Tab, direction: Literal["back", "forward"], timeout: float
) -> cdp.PageNavigationEntry:
    """Return the page that `back` or `forward` leads to. Raises LOAD_FAILED if there is none, URL_DENIED if it may not be shown."""
    history = await _send(tab, cdp.PageGetNavigationHistory(), timeout)
    if history is None:
        raise ToolError(PAGE_HUNG, f"The page in {tab.id} does not answer.")
    at = history.current_index
    entries = history.entries[:at][::-1] if direction == "back" else history.entries[at + 1 :]
    if not entries:
        raise ToolError(LOAD_FAILED, f"There is no page to go {direction} to.")
    # An empty page in the history comes from `_stop_scripts`.
    entry = next((entry for entry in entries if entry.url not in _EMPTY_PAGES), entries[0])
    check_url(entry.url)
    return entry


async def _start(
    tab: Tab, command: cdp.Command[Any], timeout: float, *, if_stopped: cdp.Command[Any] | None = None
) -> None:
    """Send a command that loads another page, and wait until the tab shows that page, or until the request for it was sent.

    If the scripts of the old page block the load, they are stopped, and `if_stopped` is sent.
    """
    commits_before, last_request = tab.commits, tab.log.requests.count

    def has_page() -> bool:
        return tab.commits > commits_before or tab.is_over

    await _send(tab, command, timeout, if_stopped=if_stopped)
    if if_stopped is None:
        await tab.until(has_page, timeout)
    elif not await tab.until(has_page, min(timeout, _PATIENCE_SECONDS)) and not _is_request_sent(
        tab, last_request
    ):
        await _stop_scripts(tab)
        commits_before = tab.commits
        await _send(tab, if_stopped, timeout)
        await tab.until(has_page, timeout)


async def _send(
    tab: Tab, command: cdp.Command[cdp.R], timeout: float, *, if_stopped: cdp.Command[Any] | None = None
) -> cdp.R | None:
    """Send a command. Returns None if a server takes longer than `timeout` to answer: the tab shows its page later.

    If the scripts of the old page block the load, they are stopped, and `if_stopped` or else the command is sent again.
    """
    if tab.is_closed:
        tab.check()
    last_request = tab.log.requests.count
    with browser_failures():
        sending = asyncio.ensure_future(tab.connection.send(command, tab.session, timeout))
        sending.add_done_callback(lambda sent: sent.cancelled() or sent.exception())
        try:
            await asyncio.wait([sending], timeout=min(timeout, _PATIENCE_SECONDS))
            if not sending.done() and not tab.is_over and not _is_request_sent(tab, last_request):
                await _stop_scripts(tab)  # the old page blocks the load
                return await tab.connection.send(if_stopped or command, tab.session, timeout)
            return await sending
        except NoAnswerError:
            if tab.is_over or not _is_request_sent(tab, last_request):
                raise
            return None
        except CdpError as error:
            raise ToolError(LOAD_FAILED, f"The page could not be loaded: {error}.") from None
        finally:
            sending.cancel()


def _is_request_sent(tab: Tab, last_request: int) -> bool:
    """Return whether the tab has requested another page since `last_request`, so that it waits for a server."""
    return any(_is_load(tab, request) for _, request in tab.log.requests.after(last_request))


def _is_load(tab: Tab, request: Request) -> bool:
    return request.kind == "Document" and request.frame_id == tab.target_id


async def _wait_until_loaded(tab: Tab, last_request: int, timeout: float) -> str:
    """Wait until the page is loaded; raise if there is no page to show. `last_request` is the number of the last request before the load."""
    await asyncio.sleep(0)
    started = await tab.until(lambda: tab.find_document(tab.target_id) is not None or tab.is_closed, timeout)
    loaded = await tab.until(lambda: not tab.is_loading or tab.is_over, timeout)
    if tab.is_crashed:
        raise ToolError(PAGE_CRASHED, "The page crashed while it was loaded.")
    tab.check()
    for _, request in tab.log.requests.after(last_request):
        headers = {name.lower(): value for name, value in request.response_headers.items()}
        if not _is_load(tab, request):
            continue
        shown = _shown(request.url)
        if request.status in _STATUSES_WITHOUT_PAGE:
            message = f"The server answered {request.status}: there is no page to show."
            raise ToolError(LOAD_FAILED, message, page=shown)
        if VERDICT_HEADER not in headers:
            continue
        if headers[VERDICT_HEADER] == "refused":
            raise ToolError(URL_DENIED, "This session may not reach that address.", page=shown)
        raise ToolError(LOAD_FAILED, "No server answers at that address.", page=shown)
    return "loaded" if loaded and started else "loading"


def _shown(url: str) -> str:
    return fence(one_line(without_credentials(url)))
