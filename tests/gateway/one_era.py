"""Limit a server to one era of the protocol."""

from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.incoming_requests import RequestHandler
from holdfast.wire.messages import Request


def without_discovery(handle: RequestHandler) -> RequestHandler:
    """Reject `server/discover`, so that the client falls back to the handshake."""
    return _without("server/discover", handle)


def without_handshake(handle: RequestHandler) -> RequestHandler:
    """Reject `initialize`, as servers do that know only the modern era."""
    return _without("initialize", handle)


def _without(method: str, handle: RequestHandler) -> RequestHandler:
    async def answer(request: Request) -> Any:
        if request.method == method:
            raise HoldfastError(codes.METHOD_NOT_FOUND, "Method not found")
        return await handle(request)

    return answer
