"""The first message of a connection: who is who, and who can do what."""

from holdfast import __version__
from holdfast.acp import shapes
from holdfast.acp.reading import read
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
"""What can be asked once both sides have introduced themselves."""

_ABILITIES = ("resume", "close", "list", "delete", "additionalDirectories")


class Greeting:
    """What the editor said of itself; nothing else is answered before it has."""

    def __init__(self) -> None:
        self.client: shapes.Initialize | None = None

    def answer(self, request: Request) -> JsonObject:
        """Say what we can do: exactly what works."""
        self.client = read(request, shapes.Initialize)
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "holdfast", "title": "Holdfast", "version": __version__},
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {name: {} for name in _ABILITIES},
            },
        }

    def check(self, request: Request) -> shapes.Initialize:
        """Who asks; refuse a method that there is not, and any before the introduction."""
        if request.method not in METHODS:
            raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method[:80]!r} here.")
        if self.client is None:
            raise HoldfastError(
                codes.INVALID_REQUEST,
                "Send initialize first.",
                hint="Introduce yourself by initialize; every other method comes after it.",
            )
        return self.client
