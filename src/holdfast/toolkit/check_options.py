"""Check the options and functions that an author gives to a box."""

import inspect
from collections.abc import Collection
from difflib import get_close_matches

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError

_OPTIONS_OF_FASTMCP = {
    "tags": 'Write meta={"fastmcp": {"tags": […]}}, where FastMCP\'s clients find them.',
    "timeout": "Write deadline=30 (seconds).",
    "output_schema": "The return type of the function says what it returns.",
    "enabled": "Leave the tool out, or remove it later: box.remove(…).",
    "exclude_args": "For a value that callers do not send, write Annotated[…, Given(function)].",
}
"""What to write instead of options that authors know from FastMCP."""


def check_options(decorator: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise BAD_TOOL for an option that does not exist: it would have no effect."""
    for name in given:
        if name not in known:
            close = get_close_matches(name, sorted(known), n=1)
            suggestion = (
                f"Did you mean {close[0]!r}?" if close else f"The options are: {', '.join(sorted(known))}."
            )
            suggestion = _OPTIONS_OF_FASTMCP.get(name, suggestion)
            raise HoldfastError(codes.BAD_TOOL, f"{decorator} has no option {name!r}. {suggestion}")


def check_parameter_count(function: object, count: int, rule: str, code: Code = codes.BAD_TOOL) -> None:
    """Raise an error unless a function can be called with this many values. `rule` is the requirement, for the message."""
    if not callable(function):
        raise HoldfastError(
            code, f"{rule}: it must be a function, not a value of the type {type(function).__name__}."
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function of C without a signature
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise HoldfastError(code, f"{rule}. {name}{signature} does not: {error}.") from None
