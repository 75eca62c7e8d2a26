"""The cookies of one link, by which a load balancer keeps it at the same server."""

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from time import time

_MAX_COOKIES = 50
_MAX_LENGTH = 4096
_SECONDS = re.compile(r"-?[0-9]+")


class Cookies:
    """Cookies by name. A link sends requests to one origin only, so each cookie goes with all of them."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}

    @property
    def header(self) -> str:
        """The `Cookie` header; empty without cookies."""
        return "; ".join(f"{name}={value}" for name, value in self._by_name.items())

    def learn(self, lines: Iterable[str]) -> None:
        """Take over `Set-Cookie` headers: keep new cookies, drop those that expired."""
        for line in lines:
            if len(line) > _MAX_LENGTH:
                continue
            pair, *rest = (part.strip() for part in line.split(";"))
            name, given, value = pair.partition("=")
            if not name or not given or not (pair.isascii() and pair.isprintable()):
                continue
            self._by_name.pop(name, None)
            if not _is_expired(rest) and len(self._by_name) < _MAX_COOKIES:
                self._by_name[name] = value


def _is_expired(attributes: Iterable[str]) -> bool:
    """Whether a cookie is expired when it is set, which is how a server deletes it."""
    by_name = {
        name.strip().lower(): value.strip() for name, _, value in (one.partition("=") for one in attributes)
    }
    age = by_name.get("max-age", "")
    if _SECONDS.fullmatch(age):
        return int(age) <= 0
    try:
        return "expires" in by_name and parsedate_to_datetime(by_name["expires"]).timestamp() <= time()
    except (ValueError, OverflowError):
        return False
