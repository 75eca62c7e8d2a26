"""Addresses of the web, read one way everywhere: who checks a host and who connects to it see the same one."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"(?!.*\.\.)[a-z0-9_][a-z0-9_.-]{0,252}")
_KEPT = "!#$%&'()*+,/:;=?@[]~"  # what stands in a path or query as it is


@dataclass(frozen=True, slots=True)
class Url:
    """Where something is: the host in lower-case ASCII and without brackets, the target as it goes on the wire."""

    scheme: str
    host: str
    port: int
    path: str
    query: str = ""

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: whose it is."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """Host and port, as the `Host` header says them."""
        host = f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """Path and query, as a request's first line says them."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def place(self) -> str:
        """What may be shown to people: a query can hold secrets."""
        return f"{self.scheme}://{self.authority}{self.path}"

    def beside(self, reference: str) -> "Url | None":
        """Another address that this one's server names, if it has the same origin."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        try:
            other = read_url(urljoin(f"{self.scheme}://{host}:{self.port}{self.target}", reference))
        except (HoldfastError, ValueError):
            return None
        return other if other.origin == self.origin else None


def read_url(text: str) -> Url:
    """Read an http or https address without a user name; any other is refused."""
    try:
        parts = urlsplit(text)
        if parts.scheme not in _PORTS or parts.username is not None or parts.password is not None:
            raise ValueError("it has another scheme, or a user name")
        if parts.port == 0:
            raise ValueError("there is no port 0")
        return Url(
            scheme=parts.scheme,
            host=_host(parts.hostname or "", parts.netloc),
            port=parts.port or _PORTS[parts.scheme],
            path=quote(parts.path, safe=_KEPT) or "/",
            query=quote(parts.query, safe=_KEPT),
        )
    except ValueError as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{text[:100]!r} is no http or https address: {error}."
        ) from None


def _host(host: str, netloc: str) -> str:
    if "[" in netloc:
        if not netloc.startswith("[") or netloc.partition("]")[2].partition(":")[0]:
            raise ValueError("its host is none")
        return str(ipaddress.IPv6Address(host))
    if not host.isascii():
        import idna  # for the few names that need it

        host = idna.encode(host, uts46=True).decode("ascii")
    if not _NAME.fullmatch(host):
        raise ValueError("its host is none")
    return host
