"""Expand `${VAR}` and `${VAR:-default}` from the environment, in time linear in the text."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_EXPANDED_LENGTH = 1024 * 1024
"""The maximum length of all expanded texts of one entry. A short entry can refer to a long variable many times."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ExpandError(ValueError):
    """A text cannot be expanded. The message says why; it contains no value of a variable."""


class Expander:
    """Expands the texts of one entry."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._left = MAX_EXPANDED_LENGTH

    def expand(self, text: str) -> str:
        """Expand the variables in a text. The values are not expanded themselves."""
        pieces: list[str] = []
        after = 0
        for reference in _find_references(text):
            pieces += (self._take(text[after : reference.start]), self._take(self._value(reference)))
            after = reference.end
        return "".join((*pieces, self._take(text[after:])))

    def _value(self, reference: "_Reference") -> str:
        value = self._environ.get(reference.name)
        if value:
            return value
        if reference.default is not None:
            return reference.default
        if value is not None:
            return value
        name = reference.name
        raise ExpandError(f"The variable {name} is not set. Set it, or give a default: ${{{name}:-…}}.")

    def _take(self, piece: str) -> str:
        self._left -= len(piece)
        if self._left < 0:
            raise ExpandError(
                f"With its variables filled in, the entry has more than {MAX_EXPANDED_LENGTH} characters."
            )
        return piece


def referenced_variables(text: str) -> tuple[str, ...]:
    """The names of the variables that a text refers to."""
    return tuple(reference.name for reference in _find_references(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    start: int
    end: int
    name: str
    default: str | None = None


def _find_references(text: str) -> Iterator[_Reference]:
    start = text.find("${")
    while start >= 0:
        name = _NAME.match(text, start + 2)
        after = name.end() if name else start + 2
        if name and text.startswith("}", after):
            yield _Reference(start=start, end=after + 1, name=name[0])
            after += 1
        elif name and text.startswith(":-", after):
            end = text.find("}", after)
            if end < 0:  # without a `}`, the rest of the text has no reference either
                return
            yield _Reference(start=start, end=end + 1, name=name[0], default=text[after + 2 : end])
            after = end + 1
        start = text.find("${", after)
