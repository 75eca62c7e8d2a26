"""Decide which hosts a confined server may reach: the name is checked first, then each of its addresses."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.blocked_addresses import (
    LOOPBACK_REASON,
    OWN_REASON,
    PRIVATE_REASON,
    how_to_allow,
    why_address_blocked,
)
from holdfast.model.own_ports import own_ports
from holdfast.model.process import Confinement

_DEFAULT_PORTS = (80, 443)  # for a grant without a port
_ANY = "*"  # a grant of every host; without a port, of every port
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})|[0-9A-Fa-f:.]{2,45}")
_TARGET = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/@\[\]]+)(:(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRequest:
    """A server's request to the egress proxy."""

    endpoint: Endpoint
    is_tunnel: bool
    """Whether it is a CONNECT request."""
    head: bytes = b""
    """The head of the HTTP request to send to the endpoint; empty for a tunnel."""


class EgressPolicy:
    """The hosts that a server may reach, and which of them it may reach at private addresses."""

    def __init__(self, confinement: Confinement) -> None:
        self._granted_hosts = [grant for text in confinement.network if (grant := _parse_grant(text))]
        self._private_hosts = [
            grant for text in confinement.allowed_private_hosts if (grant := _parse_grant(text))
        ]
        self._denied_ports = frozenset(confinement.denied_ports)
        self._ports_data_dir = confinement.ports_data_dir

    def why_name_refused(self, endpoint: Endpoint) -> str | None:
        """Why the name and port are not granted; None if they are."""
        if any(_covers(grant, endpoint, _DEFAULT_PORTS) for grant in self._granted_hosts):
            return None
        return f"{endpoint} was not granted to this server. Add it to the server's network list."

    def why_address_refused(self, endpoint: Endpoint, address: str) -> str | None:
        """Why a granted endpoint may not be reached at this address; None if it may."""
        why = why_address_blocked(ipaddress.ip_address(address.partition("%")[0]))
        if why is None:
            return None
        if self._is_denied(endpoint.port):
            return f"{endpoint} is a port of Holdfast itself. No page or server may reach it."
        # A grant that names the host allows any address of it; `*` only loopback, the machine's own and private addresses.
        covering = [grant for grant in self._private_hosts if _covers(grant, endpoint, None)]
        if any(host != _ANY for host, _ in covering) or (
            covering and why in (LOOPBACK_REASON, OWN_REASON, PRIVATE_REASON)
        ):
            return None
        allowed = endpoint.host if ":" in endpoint.host else str(endpoint)
        return f"{endpoint} is at {address}, {why}. {how_to_allow(allowed)}"

    def _is_denied(self, port: int) -> bool:
        """Whether a Holdfast process listens on a port, also one that began to listen after the sandbox was started."""
        if port in self._denied_ports:
            return True
        return self._ports_data_dir != "" and port in own_ports(Path(self._ports_data_dir))


def parse_request(head: bytes) -> ProxyRequest | str:
    """Parse the head of a proxy request; return the error as text if it is malformed."""
    line, _, rest = head.partition(b"\r\n")
    try:
        method, target, version = line.decode("ascii").split(" ")
    except ValueError:
        return "This is not an HTTP request."
    if not version.startswith("HTTP/1."):
        return "The proxy accepts only HTTP/1.x."
    if method == "CONNECT":
        endpoint = _parse_endpoint(target, None)
        return ProxyRequest(endpoint=endpoint, is_tunnel=True) if endpoint else "CONNECT needs host:port."
    scheme, _, address = target.partition("://")
    if scheme.lower() != "http":
        return "Use http://host/path, or CONNECT host:port."
    authority, slash, path = address.partition("/")
    endpoint = _parse_endpoint(authority, 80)
    if endpoint is None:
        return "The URL has no valid host."
    headers = [header for header in rest.split(b"\r\n") if header and not _is_replaced_header(header)]
    forwarded = b"\r\n".join(
        [
            f"{method} {slash or '/'}{path} {version}".encode(),
            b"Host: " + authority.encode(),
            *headers,
            b"Connection: close",
            b"\r\n",
        ]
    )
    return ProxyRequest(endpoint=endpoint, is_tunnel=False, head=forwarded)


def _is_replaced_header(header: bytes) -> bool:
    name = header.partition(b":")[0].strip().lower()
    return name in (b"host", b"connection", b"keep-alive") or name.startswith(b"proxy-")


def _parse_endpoint(authority: str, default_port: int | None) -> Endpoint | None:
    matched = _TARGET.fullmatch(authority)
    port = int(matched["port"]) if matched and matched["port"] else default_port
    if not matched or port is None or not 0 < port < 65536:
        return None
    host = _normalize(matched["host"])
    return Endpoint(host=host, port=port) if _NAME.fullmatch(host) else None


def _parse_grant(text: str) -> tuple[str, int | None] | None:
    if text.count(":") > 1 and "[" not in text:  # an IPv6 address without brackets
        return _normalize(text), None
    matched = _TARGET.fullmatch(text)
    return (
        (_normalize(matched["host"]), int(matched["port"]) if matched["port"] else None) if matched else None
    )


def _covers(grant: tuple[str, int | None], endpoint: Endpoint, ports: tuple[int, ...] | None) -> bool:
    """Whether a grant covers an endpoint. A grant without a port covers `ports`, or every port if that is None."""
    host, port = grant
    if host == _ANY:
        return port in (None, endpoint.port)
    if host != endpoint.host:
        return False
    return port == endpoint.port if port is not None else ports is None or endpoint.port in ports


def _normalize(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()
