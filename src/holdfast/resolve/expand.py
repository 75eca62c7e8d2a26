"""Expand `${VAR}` and `${VAR:-default}` from the environment."""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


class MissingVariableError(ValueError):
    """A variable is not set and has no default."""


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Expand the variables in a text. The values are not expanded themselves."""

    def value(found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        set_to = environ.get(name)
        if set_to:
            return set_to
        if default is not None:
            return default
        if set_to is not None:
            return set_to
        raise MissingVariableError(name)

    return _REFERENCE.sub(value, text)


def referenced_variables(text: str) -> tuple[str, ...]:
    """The names of the variables that a text refers to."""
    return tuple(found["name"] for found in _REFERENCE.finditer(text))
