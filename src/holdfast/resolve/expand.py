"""`${VAR}` and `${VAR:-default}` in an entry, filled in from the environment."""

import re
from collections.abc import Mapping

_PLACE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


class Missing(ValueError):
    """A variable that is neither set nor given a default."""


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with its variables filled in; what is filled in is not looked at again."""

    def value(found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        set_to = environ.get(name)
        if set_to:
            return set_to
        if default is not None:
            return default
        if set_to is not None:
            return set_to
        raise Missing(name)

    return _PLACE.sub(value, text)


def variables(text: str) -> tuple[str, ...]:
    """The names of the variables that a text would be filled in from."""
    return tuple(found["name"] for found in _PLACE.finditer(text))
