"""Check the names of the options that an author gives to a decorator of a box."""

from collections.abc import Collection
from difflib import get_close_matches

from holdfast.model import codes
from holdfast.model.errors import HoldfastError


def check_options(decorator: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise BAD_TOOL for an option that does not exist: it would have no effect."""
    for name in given:
        if name not in known:
            close = get_close_matches(name, sorted(known), n=1)
            suggestion = (
                f"Did you mean {close[0]!r}?" if close else f"The options are: {', '.join(sorted(known))}."
            )
            raise HoldfastError(codes.BAD_TOOL, f"{decorator} has no option {name!r}. {suggestion}")
