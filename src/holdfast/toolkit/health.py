"""The answer to health checks of a server over HTTP."""

from typing import Any

from holdfast.wire.http.request import Receive, Send
from holdfast.wire.http.response import send_response

HEALTH_PATH = "/healthz"
_JSON = (b"content-type", b"application/json")


async def send_health(send: Send) -> None:
    """Answer that the server runs. The answer says nothing else, so anyone may ask."""
    await send_response(send, 200, b'{"ok": true}', (_JSON,))


def with_health(app: Any) -> Any:
    """The application, with an answer to health checks."""

    async def answer(scope: Any, receive: Receive, send: Send) -> None:
        if scope["path"] == HEALTH_PATH:
            await send_health(send)
        else:
            await app(scope, receive, send)

    return answer
