"""Whom a token is for."""

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_PORTS = {"http": 80, "https": 443}


def audience_of(url: str) -> str:
    """The audience of the server at this address: scheme, host, port unless usual, and path.

    An address and not a name: names are given by whoever writes a config, and a server that took another's name
    would be sent tokens that the other accepts.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url.strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
        parts = urlsplit("")
    if scheme not in _PORTS or not host:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{url[:100]!r} is no http or https address.")
    host = f"[{host}]" if ":" in host else host.rstrip(".")
    place = host if port in (None, _PORTS[scheme]) else f"{host}:{port}"
    return f"{scheme}://{place}{parts.path.rstrip('/')}"
