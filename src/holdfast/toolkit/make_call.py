"""Make the `Call` that handlers and guards get, from an MCP request."""

from typing import Any

from holdfast.toolkit.authentication import CallerIdentity
from holdfast.toolkit.call import SILENT, Call
from holdfast.toolkit.client_requests import NO_CLIENT, ClientRequests
from holdfast.toolkit.round_trips import RoundTrips
from holdfast.wire.mcp.server import McpRequest


def make_call(
    request: McpRequest,
    caller: CallerIdentity,
    name: str,
    client_requests: ClientRequests = NO_CLIENT,
    *,
    level: int = SILENT,
) -> Call:
    """The call of a tool, a prompt or a resource with this name, from a caller who was authenticated."""
    notify: Any = client_requests.notify if isinstance(client_requests, RoundTrips) else request.notify
    return Call(
        tool=name,
        call_id=request.id,
        session=caller.session,
        announced_workspace=caller.announced_workspace,
        client=request.client.implementation.name,
        mcp_session_id=request.http.session_id if request.http else "",
        connection=caller.connection,
        meta=request.meta,
        headers=request.http.shown_headers if request.http else {},
        notify=notify,
        level=level,
        client_requests=client_requests,
    )
