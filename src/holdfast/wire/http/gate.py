"""Who may talk to a server on this address at all: whom it is reached as, and from which pages.

A page of a stranger can point its own name at 127.0.0.1 and let the reader's browser do the talking. The browser then
says truthfully which name it was given (`Host`) and whose page it is (`Origin`); nothing else tells it from a client.
"""

import re
from dataclasses import dataclass

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.headers import Headers

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_ORIGIN = re.compile(r"https?://(?P<place>[^/?#@]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The names a server answers to, and the pages (origins) besides its own that may use it."""

    hosts: frozenset[str] = LOOPBACK
    origins: frozenset[str] = frozenset()

    def check(self, headers: Headers) -> None:
        """Raise unless the request was meant for this server, and not sent by a stranger's page."""
        host = headers.get("host")
        if self._name(host) is None:
            raise HoldfastError(codes.NOT_FOR_STRANGERS, f"This server is not {(host or '')[:80]!r}.")
        origin = headers.get("origin")
        if origin is None or origin in self.origins:
            return
        place = _ORIGIN.fullmatch(origin.lower())
        if place is None or self._name(place["place"]) is None:
            raise HoldfastError(codes.NOT_FOR_STRANGERS, f"Pages of {origin[:80]!r} may not use this server.")

    def _name(self, place: str | None) -> str | None:
        found = _HOST.fullmatch(place.lower()) if place else None
        return found["name"] if found and found["name"] in self.hosts else None


LOCAL = Gate()
"""This machine's own clients."""
