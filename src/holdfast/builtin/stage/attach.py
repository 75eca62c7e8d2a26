"""Attaches to a browser or an Electron app that is already running. Holdfast never closes it, and never changes its settings."""

from holdfast.builtin.stage.browser import Browser, IdCounters, Stage
from holdfast.builtin.stage.cdp.connection import CdpError, Connection, ConnectionLostError, NoAnswerError
from holdfast.builtin.stage.cdp.websocket import (
    MissingLibraryError,
    NotAnEndpointError,
    WebSocketTransport,
    find_endpoint,
)
from holdfast.builtin.stage.codes import LOAD_FAILED, UNSUPPORTED_HERE
from holdfast.toolkit import ToolError


async def attach_browser(endpoint: str, counters: IdCounters) -> Stage:
    """Return a stage with the tabs of the browser at an endpoint of this machine. Raises LOAD_FAILED if there is no browser."""
    connection = Connection()
    try:
        await WebSocketTransport.open(connection, await find_endpoint(endpoint))
    except MissingLibraryError:
        raise ToolError(
            UNSUPPORTED_HERE, "attach needs the package websockets: pip install 'holdfast[stage]'."
        ) from None
    except (NotAnEndpointError, OSError, TimeoutError) as error:
        raise ToolError(LOAD_FAILED, f"Cannot attach to {endpoint[:80]!r}: {error}.") from None
    try:
        return await Browser.attach(connection, counters)
    except (NoAnswerError, ConnectionLostError, CdpError) as error:
        raise ToolError(LOAD_FAILED, f"Cannot attach to {endpoint[:80]!r}: {error}.") from None
