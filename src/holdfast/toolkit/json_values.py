"""Encode Python values as JSON, find the numbers that JSON does not have, and write whole numbers as integers."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, MappingView, Sequence, Set
from contextlib import suppress
from dataclasses import is_dataclass
from decimal import Decimal
from itertools import islice
from math import isfinite
from typing import Any, cast

import msgspec

from holdfast.model.json import is_all_finite
from holdfast.toolkit.errors import ResultMismatchError

_STRING_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?\d++(?:\.\d++)?+(?:[eE][+-]?\d++)?+')
_MAX_REWRITTEN_BYTES = 64 * 1024  # rewriting more would block the event loop
_MAX_ITEMS = 1_000_000  # reading more items of an iterator or another collection would block the event loop
_MAX_NUMBER_LENGTH = 40  # characters; a longer number is not rewritten


def is_finite(value: object) -> bool:
    """Whether no number inside a value is NaN or an infinity. Encoders turn these into `null`."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, str | int | None):
        return True
    return is_all_finite(msgspec.to_builtins(value, enc_hook=_convert, str_keys=True))


def write_integers(raw: bytes) -> bytes:
    """Write each whole number such as `2.0` or `2e3` as an integer. JSON of more than 64 KiB is returned unchanged."""
    return raw if len(raw) > _MAX_REWRITTEN_BYTES else _STRING_OR_NUMBER.sub(_write_integer, raw)


def _write_integer(found: re.Match[bytes]) -> bytes:
    token = found[0]
    if token.startswith(b'"') or token.lstrip(b"-").isdigit() or len(token) > _MAX_NUMBER_LENGTH:
        return token
    number = Decimal(token.decode())
    is_whole = number.adjusted() < _MAX_NUMBER_LENGTH and number == number.to_integral_value()
    return str(int(number)).encode() if is_whole else token


def _convert(value: object) -> object:
    """Convert a value that msgspec does not support: a pydantic model, a path, an address, a collection, an iterator."""
    kind = type(value).__name__
    is_instance = is_dataclass(value) and not isinstance(value, type)
    if is_instance or isinstance(value, bool | tuple | frozenset | msgspec.Struct | None):
        # msgspec encodes these itself, except as keys.
        raise ResultMismatchError(
            f"The result has a dict with a key of the type {kind}. Use text or numbers as keys."
        )
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if isinstance(value, re.Pattern):
        return cast("re.Pattern[str]", value).pattern
    if type(value).__module__ == "ipaddress":
        return str(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, Sequence | Set | MappingView | Iterator):
        return _read_items(cast("Iterable[object]", value))
    if "pydantic_core" in sys.modules:  # the type may be one of pydantic's
        from pydantic_core import PydanticSerializationError, to_jsonable_python

        with suppress(PydanticSerializationError):
            return to_jsonable_python(value)
    raise ResultMismatchError(
        f"The result has a value of the type {kind}, which JSON does not have. Convert it, for example with str(…)."
    )


def _read_items(items: Iterable[object]) -> list[object]:
    """The items of a collection or an iterator. They are checked here, because an iterator cannot be read again."""
    read = list(islice(items, _MAX_ITEMS + 1))
    if len(read) > _MAX_ITEMS:
        raise ResultMismatchError(f"The result has a collection with more than {_MAX_ITEMS} items.")
    if not is_finite(read):
        raise ResultMismatchError("The result has a NaN or an infinity, which JSON does not have.")
    return read


_encode = msgspec.json.Encoder(enc_hook=_convert).encode


def encode_json(value: Any) -> bytes:
    """The JSON of a value. Raise `ResultMismatchError` if JSON does not have such a value."""
    try:
        return _encode(value)
    except RecursionError:
        reason = "The result is nested too deeply, or contains itself: a dict, a list or an object that is its own member."
    except UnicodeEncodeError as error:
        reason = f"The result has text with the character {error.object[error.start]!a}, which UTF-8 does not have."
    raise ResultMismatchError(reason)
