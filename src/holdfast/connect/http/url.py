"""Parses the URLs of remote servers, strictly, so that the address check (`address_policy`) and aiohttp see the same host."""

import ipaddress
import re
from urllib.parse import urljoin, urlsplit

from yarl import URL

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_NAME = re.compile(r"(?!.*\.\.)[a-z0-9_][a-z0-9_.-]{0,252}")


def parse_url(text: str) -> URL:
    """Parse an http or https address. Refuse other schemes, and user names in the address."""
    try:
        text.encode()  # refuses lone surrogates
        authority = urlsplit(text).netloc
        if "@" in authority:
            raise ValueError("it has a user name")
        url = URL(text).with_fragment(None)
        _check_url(url, authority)
    except (ValueError, IndexError) as error:  # yarl raises IndexError for some misplaced brackets
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{text[:100]!r} cannot be used as an http or https address: {error}."
        ) from None
    return url


def join_url(base: URL, reference: str) -> URL | None:
    """Resolve `reference` relative to `base`. None if the scheme, host or port differs."""
    try:
        url = parse_url(urljoin(str(base), reference))
    except (HoldfastError, ValueError):
        return None
    return url if url.origin() == base.origin() else None


def display_url(url: URL) -> str:
    """The address without its query, which may hold secrets."""
    return str(url.with_query(None))


def _check_url(url: URL, authority: str) -> None:
    host = url.raw_host or ""
    if url.scheme not in ("http", "https"):
        raise ValueError("it has another scheme")
    if url.port == 0 or (":" in authority and not authority.rpartition(":")[2].isascii()):
        raise ValueError("its port is not valid")
    if "[" in authority:
        ipaddress.IPv6Address(host)
    elif not _NAME.fullmatch(host):
        raise ValueError("its host is not valid")
