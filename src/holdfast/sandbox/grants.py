"""Which hosts a confined server may reach: decided from names and addresses, before anything is sent."""

import ipaddress
import re
from dataclasses import dataclass

from holdfast.model.address import why_inside
from holdfast.model.launch import Confinement

_PORTS = (80, 443)  # of a grant that names none
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})|[0-9A-Fa-f:.]{2,45}")
_TARGET = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/@\[\]]+)(:(?P<port>[0-9]{1,5}))?")
_AZURE = ipaddress.ip_address("168.63.129.16")  # a public address, and every Azure machine's own metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a server asked its proxy for: where to, and what to send there first."""

    place: Place
    tunnel: bool
    first: bytes = b""


class Grants:
    """The hosts that were granted, and those of them that may lie inside."""

    def __init__(self, confinement: Confinement) -> None:
        self._network = [target for text in confinement.network if (target := _target(text))]
        self._reachable = [target for text in confinement.reachable if (target := _target(text))]

    def why_not(self, place: Place) -> str | None:
        """Why this place is out of bounds by its name; None when it is granted."""
        if any(_covers(target, place, _PORTS) for target in self._network):
            return None
        return f"{place} was not granted to this server. Add it to the server's network list."

    def why_not_address(self, place: Place, address: str) -> str | None:
        """Why a granted place may not be reached at this address; None when it may."""
        ip = ipaddress.ip_address(address.partition("%")[0])
        why = "the cloud's metadata address" if ip == _AZURE else why_inside(ip)
        if why is None or any(_covers(target, place, None) for target in self._reachable):
            return None
        return f"{place} is at {address}, {why}. The host's settings can allow it: servers.reachable."


def read_request(head: bytes) -> Wanted | str:
    """What the first lines of a proxy request ask for, or what is wrong with them."""
    line, _, rest = head.partition(b"\r\n")
    try:
        method, target, version = line.decode("ascii").split(" ")
    except ValueError:
        return "This is no HTTP request."
    if not version.startswith("HTTP/1."):
        return "The proxy speaks HTTP/1.1."
    if method == "CONNECT":
        place = _place(target, None)
        return Wanted(place=place, tunnel=True) if place else "CONNECT needs host:port."
    scheme, _, address = target.partition("://")
    if scheme.lower() != "http":
        return "Ask for http://host/path, or CONNECT host:port."
    authority, slash, path = address.partition("/")
    place = _place(authority, 80)
    if place is None:
        return "The address has no host."
    headers = [header for header in rest.split(b"\r\n") if header and not _of_the_proxy(header)]
    first = b"\r\n".join(
        [
            f"{method} {slash or '/'}{path} {version}".encode(),
            b"Host: " + authority.encode(),
            *headers,
            b"Connection: close",
            b"\r\n",
        ]
    )
    return Wanted(place=place, tunnel=False, first=first)


def _of_the_proxy(header: bytes) -> bool:
    name = header.partition(b":")[0].strip().lower()
    return name in (b"host", b"connection", b"keep-alive") or name.startswith(b"proxy-")


def _place(authority: str, default_port: int | None) -> Place | None:
    found = _TARGET.fullmatch(authority)
    port = int(found["port"]) if found and found["port"] else default_port
    if not found or port is None or not 0 < port < 65536:
        return None
    host = _normal(found["host"])
    return Place(host=host, port=port) if _NAME.fullmatch(host) else None


def _target(text: str) -> tuple[str, int | None] | None:
    if text.count(":") > 1 and "[" not in text:  # an IPv6 address without its brackets
        return _normal(text), None
    found = _TARGET.fullmatch(text)
    return (_normal(found["host"]), int(found["port"]) if found["port"] else None) if found else None


def _covers(target: tuple[str, int | None], place: Place, ports: tuple[int, ...] | None) -> bool:
    host, port = target
    if host != place.host:
        return False
    return port == place.port if port is not None else ports is None or place.port in ports


def _normal(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()
