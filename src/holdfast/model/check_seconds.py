"""Check a number of seconds that an application gives."""

import math

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError


def check_seconds(name: str, value: object, code: Code = codes.BAD_ARGUMENT) -> None:
    """Raise unless the value is None, or a number of seconds: more than 0, and finite."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = type(value).__name__
        raise HoldfastError(code, f"`{name}` must be a number of seconds, not a value of the type {kind}.")
    if not math.isfinite(value) or value <= 0:
        raise HoldfastError(
            code, f"`{name}` must be a number of seconds, more than 0 and finite, not {value!r}."
        )
