"""The notes server as it would be without its protection: it looks at tokens last, and keeps everything that it is sent."""

from collections.abc import Mapping
from typing import Any

from holdfast.toolkit import authentication, serve
from holdfast.wire.http import HttpApp, HttpLimits
from holdfast.wire.http.sessions import HttpSession, HttpSessions
from holdfast.wire.mcp.server import UNKNOWN_CALLER, ClientInfo, HttpCaller
from tests.toolkit.notes_server import box

SESSIONS = 200
LIMITS = HttpLimits(sessions=SESSIONS, body_memory=10**12, body_memory_per_caller=10**12)


class Sessions(HttpSessions):
    """Sessions that all count as used, so that none makes room."""

    def open(self, client: ClientInfo, caller_id: str) -> HttpSession:
        return self.find(super().open(client, caller_id).session_id, caller_id)


class App(HttpApp):
    """An application with these sessions and limits."""

    def __init__(self, service: Any, **options: Any) -> None:
        super().__init__(service, http_limits=LIMITS, **options)
        self.sessions = Sessions(LIMITS)


class Authenticator(authentication.TokenAuthenticator):
    """Asks for a token only when a tool is called."""

    def identify(self, headers: Mapping[str, str], query: str) -> HttpCaller:
        return super().identify(headers, query) if "holdfast-context" in headers else UNKNOWN_CALLER


if __name__ == "__main__":
    import holdfast.wire.http

    holdfast.wire.http.HttpApp = App  # type: ignore[misc]
    serve.TokenAuthenticator = Authenticator  # type: ignore[misc]
    box.main()
