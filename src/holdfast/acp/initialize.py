"""The `initialize` request, which must be a connection's first."""

from holdfast import __version__
from holdfast.acp.messages import InitializeParams, decode_params
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.frame import Request

VERSION = 1
INITIALIZE = "initialize"
METHODS = frozenset(
    {
        "authenticate",
        "session/new",
        "session/load",
        "session/resume",
        "session/prompt",
        "session/list",
        "session/close",
        "session/delete",
        "session/set_mode",
        "session/set_config_option",
    }
)
"""The methods that are available after `initialize`."""

_SESSION_CAPABILITIES = ("resume", "close", "list", "delete", "additionalDirectories")


class Initialization:
    """Whether a connection is initialized, and what its client declared. Refuses other requests before that."""

    def __init__(self) -> None:
        self.client: InitializeParams | None = None

    def respond(self, request: Request) -> JsonObject:
        """Answer `initialize` with the agent's capabilities."""
        self.client = decode_params(request, InitializeParams)
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

    def check(self, request: Request) -> InitializeParams:
        """Return what the client declared. Raises for an unknown method, and for any method before `initialize`."""
        if request.method not in METHODS:
            raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method[:80]!r}.")
        if self.client is None:
            raise HoldfastError(
                codes.INVALID_REQUEST,
                "Send initialize first.",
                hint="Send initialize before any other method.",
            )
        return self.client
