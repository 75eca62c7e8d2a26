"""Encode Python values as JSON, and find the numbers that JSON does not have."""

from math import isfinite
from typing import Any, cast

import msgspec


def is_finite(value: object) -> bool:
    """Whether no number inside a value is NaN or an infinity. Encoders turn these into `null`."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, str | int | None):
        return True
    waiting: list[Any] = [msgspec.to_builtins(value, enc_hook=_dump_model, str_keys=True)]
    while waiting:
        part = waiting.pop()
        if isinstance(part, float):
            if not isfinite(part):
                return False
        elif isinstance(part, dict):
            waiting += cast("dict[Any, Any]", part).values()
        elif isinstance(part, list):
            waiting += cast("list[Any]", part)
    return True


def _dump_model(value: object) -> object:
    """Convert a pydantic model, which msgspec does not support."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} cannot be turned into JSON")
    return dump(mode="json")


encode_json = msgspec.json.Encoder(enc_hook=_dump_model).encode
