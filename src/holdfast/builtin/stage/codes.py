"""The error codes of the stage tools, and how failures of the browser become errors with these codes."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.builtin.stage.cdp.connection import (
    CdpError,
    ConnectionLostError,
    NoAnswerError,
    SessionLostError,
)
from holdfast.model.codes import Code
from holdfast.toolkit import ToolError


def _code(name: str, http: int, hint: str, *, retryable: bool = False) -> Code:
    return Code(name=name, http_status=http, hint=hint, retryable=retryable)


STALE_REF = _code("STALE_REF", 409, "Take a new snapshot, or use one of the similar refs.", retryable=True)
NO_ELEMENT = _code("NO_ELEMENT", 404, "Use a ref from a snapshot or find.")
NOT_VISIBLE = _code("NOT_VISIBLE", 409, "Open or scroll to what contains the element first.")
ELEMENT_DISABLED = _code(
    "ELEMENT_DISABLED", 409, "Wait until it is enabled: call wait with this ref and the state enabled."
)
COVERED = _code("COVERED", 409, "Close or move what covers the element, then try again.")
NO_EFFECT = _code("NO_EFFECT", 422, "Look at the element in a snapshot and choose another action.")
DIALOG_OPEN = _code(
    "DIALOG_OPEN", 409, "Go elsewhere with goto, or close the tab: its dialogs block it.", retryable=True
)
PAGE_HUNG = _code(
    "PAGE_HUNG", 504, "Wait and try again, go elsewhere with goto, or close the tab.", retryable=True
)
PAGE_CRASHED = _code("PAGE_CRASHED", 500, "Load a page with goto, or close the tab.")
TAB_GONE = _code("TAB_GONE", 410, "To list the open tabs, call tabs.")
URL_DENIED = _code("URL_DENIED", 403, "Use an http or https address that this session may reach.")
LOAD_FAILED = _code("LOAD_FAILED", 502, "Check the address, and that its server runs.")
NOT_YET = _code("NOT_YET", 408, "Compare expected and actual in the details.", retryable=True)
NO_BROWSER = _code("NO_BROWSER", 501, "Install your system's package 'chromium'.")
LAUNCH_FAILED = _code("LAUNCH_FAILED", 500, "The message has the reason.")
BROWSER_GONE = _code("BROWSER_GONE", 500, "Call open: it starts a new browser.")
TOO_MANY_TABS = _code("TOO_MANY_TABS", 429, "Close a tab or a stage first.")
UNSUPPORTED_HERE = _code("UNSUPPORTED_HERE", 501, "The message says what is supported instead.")
SCRIPT_FAILED = _code("SCRIPT_FAILED", 422, "Correct the script.")

STAGE_CODES = (
    *(STALE_REF, NO_ELEMENT, NOT_VISIBLE, ELEMENT_DISABLED, COVERED, NO_EFFECT, DIALOG_OPEN, PAGE_HUNG),
    *(PAGE_CRASHED, TAB_GONE, URL_DENIED, LOAD_FAILED, NOT_YET, NO_BROWSER, LAUNCH_FAILED, BROWSER_GONE),
    *(TOO_MANY_TABS, UNSUPPORTED_HERE, SCRIPT_FAILED),
)


@contextmanager
def browser_failures() -> Iterator[None]:
    """Convert failures of the browser in this block to errors with a code."""
    try:
        yield
    except NoAnswerError:
        raise ToolError(PAGE_HUNG, "The page does not answer: its scripts are busy.") from None
    except SessionLostError:
        raise ToolError(TAB_GONE, "The tab was closed during the call.") from None
    except ConnectionLostError:
        raise ToolError(BROWSER_GONE, "The browser has ended. Its stages and tabs are lost.") from None
    except CdpError as error:
        text = str(error).lower()
        if any(words in text for words in ("context", "navigated", "session with given id", "active page")):
            raise ToolError(STALE_REF, "The page navigated during the call.") from None
        raise
