"""Attach to a browser or an Electron app that runs already. It is never closed, and its settings are never changed."""

from holdfast.builtin.stage.browser import Browser, Numbers, Stage
from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import CdpError, Connection
from holdfast.builtin.stage.cdp.websocket import (
    MissingLibraryError,
    NotAnEndpointError,
    WebSocketTransport,
    find_endpoint,
)
from holdfast.builtin.stage.codes import LOAD_FAILED, UNSUPPORTED_HERE, browser_failures
from holdfast.builtin.stage.limits import MAX_TABS
from holdfast.toolkit import ToolError


async def attach_browser(endpoint: str, numbers: Numbers) -> Stage:
    """A stage with the tabs of the browser at an endpoint of this machine; raises LOAD_FAILED if there is none."""
    connection = Connection()
    try:
        await WebSocketTransport.open(connection, await find_endpoint(endpoint))
    except MissingLibraryError:
        raise ToolError(
            UNSUPPORTED_HERE, "attach needs the package websockets: pip install 'holdfast[stage]'."
        ) from None
    except (NotAnEndpointError, OSError, TimeoutError) as error:
        raise ToolError(LOAD_FAILED, f"Cannot attach to {endpoint[:80]!r}: {error}.") from None
    browser = Browser(connection, None, numbers)
    numbers.stages += 1
    stage = Stage(browser, f"s{numbers.stages}", "")
    stage.is_attached = True
    browser.stages[""] = stage
    try:
        with browser_failures():
            await _follow_tabs(browser, stage)
    except BaseException:
        await browser.close()
        raise
    return stage


async def _follow_tabs(browser: Browser, stage: Stage) -> None:
    targets = await browser.connection.send(cdp.TargetGetTargets())
    for info in targets.target_infos:
        if info.type not in ("page", "webview") or len(stage.tabs) >= MAX_TABS:
            continue
        try:
            attached = await browser.connection.send(
                cdp.TargetAttachToTarget(target_id=info.target_id, flatten=True)
            )
        except CdpError:  # it has just been closed
            continue
        tab = browser.add_tab(stage, info, attached.session_id)
        await tab.ready.wait()
