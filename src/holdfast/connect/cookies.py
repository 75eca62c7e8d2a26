"""The cookies of one link, which keep it at the same place where a server has many."""

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from time import time

_MOST = 50
_LENGTH = 4096
_SECONDS = re.compile(r"-?[0-9]+")


class Cookies:
    """By name. They go back to the origin that set them, since a link speaks to no other, and to all of it."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}

    @property
    def header(self) -> str:
        """What goes along with a request; empty without any."""
        return "; ".join(f"{name}={value}" for name, value in self._by_name.items())

    def learn(self, lines: Iterable[str]) -> None:
        """Keep what a server set, and drop what it took back."""
        for line in lines:
            if len(line) > _LENGTH:
                continue
            pair, *rest = (part.strip() for part in line.split(";"))
            name, given, value = pair.partition("=")
            if not name or not given or not (pair.isascii() and pair.isprintable()):
                continue
            self._by_name.pop(name, None)
            if not _is_over(rest) and len(self._by_name) < _MOST:
                self._by_name[name] = value


def _is_over(attributes: Iterable[str]) -> bool:
    """Whether a cookie's time is up as it is set, which is how a server takes it back."""
    said = {
        name.strip().lower(): value.strip() for name, _, value in (one.partition("=") for one in attributes)
    }
    age = said.get("max-age", "")
    if _SECONDS.fullmatch(age):
        return int(age) <= 0
    try:
        return "expires" in said and parsedate_to_datetime(said["expires"]).timestamp() <= time()
    except (ValueError, OverflowError):
        return False
