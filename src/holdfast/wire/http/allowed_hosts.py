"""Which `Host` and `Origin` headers a server accepts: protection against DNS rebinding.

A malicious web page can point its own domain at 127.0.0.1, so that the user's browser sends requests to a local server.
Two headers reveal such a request: `Host` is the malicious domain, and `Origin` is the origin of the page.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.request import Headers

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

_MAX_HOST = 320  # characters, with the port; DNS names have at most 253
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#@]+)")
_WRITTEN_ORIGIN = re.compile(r"https?://[^/\s]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedHosts:
    """The host names of a server, and the origins of the web pages on other hosts that may use it."""

    hosts: frozenset[str] = LOOPBACK
    origins: frozenset[str] = frozenset()
    own_origin_only: bool = False
    """Whether a page on the server's own host is refused if its scheme or port differs. Pages in `origins` are always allowed."""

    def check(self, headers: Headers) -> None:
        """Raise unless the request is for this server and from an allowed origin."""
        host = headers.get("host")
        if not self._is_allowed(host):
            raise HoldfastError(
                codes.HOST_NOT_ALLOWED,
                f"{(host or '')[:80]!r} is not a host name of this server. To allow it, start the server with --allow-host"
                " (in Python: the parameter `hosts`).",
            )
        origin = headers.get("origin")
        if origin is None or origin in self.origins:
            return
        match = _ORIGIN.fullmatch(origin.lower())
        if match is None or not self._may_use(match["scheme"], match["host"], host or ""):
            raise HoldfastError(
                codes.HOST_NOT_ALLOWED,
                f"Pages from {origin[:80]!r} may not use this server. To allow them, start the server with --allow-origin"
                " (in Python: the parameter `origins`).",
            )

    def _may_use(self, scheme: str, page_host: str, host: str) -> bool:
        """Whether pages of this scheme and host may use the server at `host`."""
        if self.own_origin_only and (scheme != "http" or not _is_same_server(page_host, host)):
            return False
        return self._is_allowed(page_host)

    def _is_allowed(self, host: str | None) -> bool:
        # Cut before the look-up, so that the cache of `_name_of` holds only short strings.
        return host is not None and _name_of(host[: _MAX_HOST + 1]) in self.hosts


@lru_cache(64)
def _name_of(host: str) -> str | None:
    """The name in a `Host` header, without the port; None if the header is not valid."""
    match = _HOST.fullmatch(host.lower()) if len(host) <= _MAX_HOST else None
    return match and match["name"]


def parse_host(host: str, option: str) -> str:
    """A host name for `AllowedHosts.hosts`. Raise BAD_ARGUMENT if no `Host` header could have it; the message names `option`."""
    match = _HOST.fullmatch(host.lower())
    if match is None or match["name"] != host.lower():
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"`{option}` contains {host!r}. Write host names such as 'shop.example', without scheme, port and path.",
        )
    return host.lower()


def parse_origin(origin: str, option: str) -> str:
    """An origin for `AllowedHosts.origins`. Raise BAD_ARGUMENT if it is not one; the message names `option`."""
    if not _WRITTEN_ORIGIN.fullmatch(origin):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"`{option}` contains {origin!r}. Write origins such as 'https://shop.example'.",
        )
    return origin.lower()  # as browsers send it


def _is_same_server(one: str, other: str) -> bool:
    """Whether two hosts, each with or without a port, are the same server. All loopback names mean the same server."""
    first, second = _HOST.fullmatch(one.lower()), _HOST.fullmatch(other.lower())
    if first is None or second is None or (first["port"] or "80") != (second["port"] or "80"):
        return False
    return first["name"] == second["name"] or LOOPBACK.issuperset((first["name"], second["name"]))


LOOPBACK_ONLY = AllowedHosts()
"""Accepts only requests for localhost, 127.0.0.1 or [::1]."""
OWN_LOOPBACK_ORIGIN = AllowedHosts(own_origin_only=True)
"""Like `LOOPBACK_ONLY`, but refuses the requests of web pages, except pages of this server itself."""
