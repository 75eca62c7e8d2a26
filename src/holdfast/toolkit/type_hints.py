"""Read the annotations of a function, also those that are strings (`from __future__ import annotations`)."""

import sys
from collections.abc import Callable
from typing import Any, get_type_hints

from holdfast.toolkit.type_support import expand_aliases

_LOCALS = ".<locals>."


def read_type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters and the result. `Annotated[…]` stays, and type aliases are replaced by what they stand for.

    An annotation that is a string may name a local variable of the function that defines this one, such as a function that makes
    a toolbox. Raises `NameError` with what to do if a name is not found.
    """
    return {name: expand_aliases(hint) for name, hint in _read(function).items()}


def _read(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        local_names = _enclosing_locals(getattr(function, "__qualname__", ""))
        if error.name not in local_names:
            raise NameError(
                f"{error}. Define it, or import it when the program runs, not only in `if TYPE_CHECKING:`",
                name=error.name,
            ) from None
        return get_type_hints(function, localns=local_names, include_extras=True)


def _enclosing_locals(qualname: str) -> dict[str, Any]:
    """The local variables of the running functions in which a function is defined."""
    enclosing: set[str] = set()
    while _LOCALS in qualname:
        qualname = qualname.rpartition(_LOCALS)[0]
        enclosing.add(qualname)
    found: dict[str, Any] = {}
    frame = sys._getframe() if enclosing else None  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_qualname in enclosing:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found
