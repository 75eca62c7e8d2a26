"""Run a toolbox as a server in the process of the application, for one session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.model.context import SessionContext
from holdfast.toolkit.authentication import Authenticator, EnvironmentAuthenticator
from holdfast.toolkit.tool_server import ToolServer
from holdfast.toolkit.toolbox import Toolbox


@asynccontextmanager
async def open_server(
    box: Toolbox, session: SessionContext, *, authenticator: Authenticator | None = None
) -> AsyncIterator[ToolServer]:
    """Serve the box while the block runs. Starts its lifespan, and at the end closes it and everything that calls have used.

    Without an `authenticator`, every call is a call of this session.
    """
    server = box.server(authenticator or EnvironmentAuthenticator(session))
    try:
        await server.start()
        yield server
    finally:
        server.on_session_end(session.session_id)
        await server.close()
