"""Chooses the proxy for a request, from `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`."""

import ipaddress
from collections.abc import Mapping
from urllib.request import getproxies_environment

from yarl import URL

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_MAX_CACHED = 1024  # origins


class Proxies:
    """Chooses the proxy for a request.

    `variables` has the keys `http`, `https`, `all` and `no`; by default, from the environment.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = getproxies_environment() if variables is None else variables
        self._by_origin: dict[URL, URL | None] = {}

    def find(self, url: URL) -> URL | None:
        """The proxy for this address; None if it is reached directly."""
        if not self._variables:
            return None
        origin = url.origin()
        if origin not in self._by_origin:
            if len(self._by_origin) >= _MAX_CACHED:
                self._by_origin.clear()
            self._by_origin[origin] = self._choose(origin)
        return self._by_origin[origin]

    def find_for(self, address: str) -> str:
        """Like `find`, with strings; empty if there is no proxy."""
        return str(self.find(URL(address)) or "")

    def _choose(self, origin: URL) -> URL | None:
        host, port = origin.raw_host or "", origin.port or 0
        proxy = self._variables.get(origin.scheme) or self._variables.get("all")
        if not proxy or _is_loopback(host) or _is_exempt(host, port, self._variables.get("no", "")):
            return None
        try:
            url = URL(proxy if "://" in proxy else f"http://{proxy}")
            if url.scheme in ("http", "https") and url.raw_host:
                return url
        except (ValueError, IndexError):
            pass
        raise HoldfastError(
            codes.BAD_SETTINGS,
            f"The proxy for {origin.scheme} addresses cannot be used: only http:// and https:// proxies are "
            f"supported. Change {origin.scheme.upper()}_PROXY or ALL_PROXY, or add {host} to NO_PROXY.",
        )


NO_PROXIES = Proxies({})


def _is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Whether `NO_PROXY` lists this host (with or without its port), its domain or its network."""
    spellings = (host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}")
    for entry in no_proxy.lower().split(","):
        name = entry.strip().lstrip(".")
        if name == "*" or name in spellings or (name and _is_subdomain(name, host, port)):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(name):
                return True
        except ValueError:
            continue
    return False


def _is_subdomain(domain: str, host: str, port: int) -> bool:
    return host.endswith(f".{domain}") or f"{host}:{port}".endswith(f".{domain}")


def _is_loopback(host: str) -> bool:
    """Whether the host is this machine, which a proxy cannot reach."""
    name = host.rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
