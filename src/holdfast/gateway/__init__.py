"""The front end for MCP clients: each client session is a Holdfast session, whose servers are behind one address.

`GatewayApp` (HTTP) and `StdioClient` receive the requests. `ClientSessions` finds the `ClientSession` that a request belongs to, and
the `RequestHandler` of that session answers it: `Offer` says which server it is for, and `RequestsToServers` sends it there. Questions
and notifications of the servers reach the client through its `ClientSession`.
"""

from typing import TYPE_CHECKING

from holdfast.gateway.credential import Authenticate, Credential
from holdfast.gateway.options import GatewayOptions, SessionSummary

if TYPE_CHECKING:
    from holdfast.gateway.gateway_app import GatewayApp
    from holdfast.host.host import Host

__all__ = ["Authenticate", "Credential", "GatewayOptions", "SessionSummary", "app", "serve_stdio"]


def app(
    host: "Host", *, authenticate: Authenticate | None = None, options: GatewayOptions | None = None
) -> "GatewayApp":
    """An ASGI application that offers the host's servers to MCP clients.

    A handshake-era client has a session of its own. Modern clients share the session of their credential, unless their requests
    name a handle, which has a session of its own (see `GatewayApp.issue_handle`).

    `authenticate` finds the credential of a request. Without it, everyone who can reach the gateway has the same credential.
    """
    from holdfast.gateway.gateway_app import GatewayApp

    return GatewayApp(host, authenticate, options or GatewayOptions())


async def serve_stdio(host: "Host", credential: Credential, options: GatewayOptions | None = None) -> None:
    """Serve one MCP client on standard input and output, until it closes them."""
    from holdfast.gateway.stdio import serve_stdio as serve

    await serve(host, credential, options or GatewayOptions())
