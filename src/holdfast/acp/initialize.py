"""Answers `initialize`, a connection's first request."""

from holdfast import __version__
from holdfast.acp.messages import InitializeParams, decode_params
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.messages import Request

VERSION = 1
INITIALIZE = "initialize"
_SESSION_CAPABILITIES = ("resume", "close", "list", "delete", "additionalDirectories")


class Initialization:
    """Answers `initialize`, and keeps what the client sent in it."""

    def __init__(self) -> None:
        self._client_params: InitializeParams | None = None

    def respond(self, request: Request) -> JsonObject:
        self._client_params = decode_params(request, InitializeParams)
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "holdfast", "title": "Holdfast", "version": __version__},
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {name: {} for name in _SESSION_CAPABILITIES},
            },
        }

    def require_initialized(self) -> InitializeParams:
        """Return the params of `initialize`. Raises INVALID_REQUEST if it has not arrived yet."""
        if self._client_params is None:
            raise HoldfastError(
                codes.INVALID_REQUEST,
                "Send initialize first.",
                hint="Send initialize before any other method.",
            )
        return self._client_params
