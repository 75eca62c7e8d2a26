"""Which `Host` and `Origin` headers a server accepts: protection against DNS rebinding.

A malicious web page can point its own domain at 127.0.0.1, so that the user's browser sends requests to a local server.
Only two headers show this: the browser puts that domain into `Host`, and the origin of the page into `Origin`.
"""

import re
from dataclasses import dataclass

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.request import Headers

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_ORIGIN = re.compile(r"https?://(?P<host>[^/?#@]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedHosts:
    """The host names of a server, and the origins of other web pages that may use it."""

    hosts: frozenset[str] = LOOPBACK
    origins: frozenset[str] = frozenset()

    def check(self, headers: Headers) -> None:
        """Raise unless the request is for this server and from an allowed origin."""
        host = headers.get("host")
        if not self._is_allowed(host):
            raise HoldfastError(
                codes.HOST_NOT_ALLOWED, f"{(host or '')[:80]!r} is not a host name of this server."
            )
        origin = headers.get("origin")
        if origin is None or origin in self.origins:
            return
        match = _ORIGIN.fullmatch(origin.lower())
        if match is None or not self._is_allowed(match["host"]):
            raise HoldfastError(
                codes.HOST_NOT_ALLOWED, f"Pages from {origin[:80]!r} may not use this server."
            )

    def _is_allowed(self, host: str | None) -> bool:
        match = _HOST.fullmatch(host.lower()) if host else None
        return match is not None and match["name"] in self.hosts


LOOPBACK_ONLY = AllowedHosts()
"""Accepts only requests for localhost, 127.0.0.1 or [::1]."""
