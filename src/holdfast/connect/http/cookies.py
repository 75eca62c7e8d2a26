"""The cookies of one link, by which load balancers recognise a client."""

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from time import time

_MAX_COOKIES = 50
_MAX_HEADER_LENGTH = 4096
_INTEGER = re.compile(r"-?[0-9]+")


class Cookies:
    """Cookies by name. All requests of a link go to one origin, so each request sends every cookie."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}

    @property
    def header(self) -> str:
        """The value of the `Cookie` header; empty if there are no cookies."""
        return "; ".join(f"{name}={value}" for name, value in self._by_name.items())

    @property
    def values(self) -> Iterable[str]:
        return self._by_name.values()

    def update(self, set_cookies: Iterable[str]) -> None:
        """Apply the values of `Set-Cookie` headers: store the cookies, and remove those that have expired. When a stored cookie will expire is ignored."""
        for line in set_cookies:
            if len(line) > _MAX_HEADER_LENGTH:
                continue
            pair, *rest = (part.strip() for part in line.split(";"))
            name, separator, value = pair.partition("=")
            if not name or not separator or not (pair.isascii() and pair.isprintable()):
                continue
            self._by_name.pop(name, None)
            if not _is_expired(rest) and len(self._by_name) < _MAX_COOKIES:
                self._by_name[name] = value


def _is_expired(attributes: Iterable[str]) -> bool:
    """Whether a cookie has expired. A server deletes a cookie by sending it with a past expiry."""
    by_name = {
        name.strip().lower(): value.strip()
        for name, _, value in (attribute.partition("=") for attribute in attributes)
    }
    age = by_name.get("max-age", "")
    if _INTEGER.fullmatch(age):
        return int(age) <= 0
    try:
        return "expires" in by_name and parsedate_to_datetime(by_name["expires"]).timestamp() <= time()
    except (ValueError, OverflowError):
        return False
