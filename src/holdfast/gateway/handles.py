"""An ASGI layer that issues handles: `POST /s` answers with a new handle of the request's credential."""

import json
from collections.abc import MutableMapping
from typing import Any

from holdfast.gateway.credential import Authenticate, Credential
from holdfast.gateway.gateway_app import GatewayApp
from holdfast.gateway.options import GatewayOptions
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.bodies import discard_body
from holdfast.wire.http.connection import report_refusal
from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS
from holdfast.wire.http.request import BadHeadError, Receive, Send, read_headers
from holdfast.wire.http.response import send_error, send_response

PATH = "/s"


class HandleApp:
    """Issues handles, and passes all other requests on to the gateway."""

    def __init__(self, app: GatewayApp, authenticate: Authenticate, options: GatewayOptions) -> None:
        self._app = app
        self._authenticate = authenticate
        self._options = options
        self._limits = options.http_limits or DEFAULT_HTTP_LIMITS

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) != PATH:
            await self._app(scope, receive, send)
            return
        credential: Credential | None = None
        try:
            headers = read_headers(scope["headers"])
            self._options.allowed_hosts.check(headers)
            if scope["method"] != "POST":
                raise BadHeadError(405, "Use POST.", allow="POST")
            client = scope.get("client")
            credential = self._authenticate(headers, str(client[0]) if client else "")
            handle = self._app.issue_handle(credential)
        except HoldfastError as error:
            self._options.on_refusal(error, credential)
            report_refusal(scope)
            await discard_body(receive, self._limits)
            await send_error(send, error, challenge=self._options.challenge)
            return
        await discard_body(receive, self._limits)
        body = json.dumps({"handle": handle, "path": f"/s/{handle}/mcp"}).encode()
        await send_response(send, 201, body, ((b"content-type", b"application/json"),))
