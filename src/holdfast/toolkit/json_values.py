"""Encode Python values as JSON, find the numbers that JSON does not have, and write whole numbers as integers."""

import re
from decimal import Decimal
from math import isfinite
from typing import Any, cast

import msgspec

_STRING_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?\d++(?:\.\d++)?+(?:[eE][+-]?\d++)?+')
_MAX_REWRITTEN = 64 * 1024  # bytes: more would block the event loop
_MAX_DIGITS = 40  # of a number that is rewritten


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


def write_integers(raw: bytes) -> bytes:
    """The JSON, with each whole number such as `2.0` or `2e3` written as an integer. A long JSON is returned as it is."""
    return raw if len(raw) > _MAX_REWRITTEN else _STRING_OR_NUMBER.sub(_write_integer, raw)


def _write_integer(found: re.Match[bytes]) -> bytes:
    token = found[0]
    if token.startswith(b'"') or token.lstrip(b"-").isdigit() or len(token) > _MAX_DIGITS:
        return token
    number = Decimal(token.decode())
    is_whole = number.adjusted() < _MAX_DIGITS and number == number.to_integral_value()
    return str(int(number)).encode() if is_whole else token


def _dump_model(value: object) -> object:
    """Convert a pydantic model, which msgspec does not support."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} cannot be turned into JSON")
    return dump(mode="json")


encode_json = msgspec.json.Encoder(enc_hook=_dump_model).encode
