"""Decode JSON strictly: no duplicate keys, no deep nesting, no huge numbers, no invalid UTF-8.

Every check makes a few passes over the bytes, in C. To find duplicate keys, a document is decoded: the decoder keeps only one
of two equal keys, so the value has fewer members than the document. A short document is also encoded again. Usually the text is
the same, and then there are no duplicates.

C code holds the GIL, so all other threads wait for it, including the event loop's. So a long document is read in slices where
possible, and no check may take more than a few nanoseconds per byte. msgspec is much slower for floats such as `1e308`, and its
time for an integer grows with the square of the number of digits. So in all but small documents, floats are read with
Python's `float`, and the number of digits is limited.
"""

import math
import re
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from holdfast.model.json import Json
from holdfast.model.limits import DEFAULT_LIMITS, SMALL_DOCUMENT_BYTES, Limits, SizeLimit

T = TypeVar("T")

# What a decoder raises for bad syntax, a wrong type, invalid UTF-8, or nesting too deep for the stack.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_encode = msgspec.json.Encoder().encode

_SLICE_BYTES = 256 * 1024  # how much is read before other threads may run
# A document up to this size is decoded quickly, whatever it contains, so quick checks are enough.
_MAX_QUICKLY_CHECKED_BYTES = 4 * 1024
_MAX_REENCODED_BYTES = 64 * 1024  # a longer document is not encoded again to find duplicate keys
_TO_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_EXTREME_EXPONENT = re.compile(rb"[eE][-+]?0*[23][0-9][0-9]")  # 200 to 399; larger numbers are refused anyway
_MAX_EXTREME_NUMBERS = 1000  # reading more would block the event loop for too long
_OPEN, _CLOSE = b"[{", b"]}"
_TO_PARENTHESES = bytes.maketrans(_OPEN + _CLOSE, b"(())")
_NOT_BRACKETS = bytes(set(range(256)) - set(_OPEN + _CLOSE))


class StrictJsonError(ValueError):
    """The JSON is invalid or over a limit. The message may be shown to the sender."""


def _read_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("Number out of range")
    return value


@lru_cache(maxsize=256)
def make_decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    """Return a function that decodes a checked document into a type.

    Floats are read with Python's `float`, except where the type says `float`: there msgspec reads them itself.
    """
    return msgspec.json.Decoder(kind, float_hook=_read_float).decode


_decode: Callable[[bytes | msgspec.Raw], Any] = make_decoder(Any)
_decode_small = msgspec.json.Decoder[Any](Any).decode


def decode_json(raw: bytes | msgspec.Raw) -> Json:
    """Decode a document from a peer in linear time; raise one of `DECODE_ERRORS` if it is invalid.

    Unlike `check_json`, this accepts duplicate keys and deep nesting.
    """
    if len(raw) <= SMALL_DOCUMENT_BYTES:
        return _decode_small(raw)
    digits = DEFAULT_LIMITS.digits
    if (
        len(raw) > _MAX_QUICKLY_CHECKED_BYTES
        and _has_long_number(bytes(raw), digits)
        and _has_long_number(strip_strings(bytes(raw)), digits)
    ):
        raise msgspec.DecodeError(_too_many_digits(DEFAULT_LIMITS))
    return _decode(raw)


def decode_strict(raw: bytes | msgspec.Raw, kind: type[T], limits: Limits) -> T:
    """Check a document and decode it into a type."""
    check_json(raw, limits)
    try:
        return make_decoder(kind)(raw)
    except msgspec.ValidationError as error:
        raise StrictJsonError(describe_decode_error(error)) from None


def check_json(raw: bytes | msgspec.Raw, limits: Limits) -> None:
    """Raise `StrictJsonError` unless the document is valid, within the limits and without duplicate keys."""
    text = bytes(raw)
    needs_only_quick_checks = (
        len(text) <= min(_MAX_QUICKLY_CHECKED_BYTES, limits.values)
        and _count(text, b"{", b"[") <= limits.depth
        and not _has_long_number(text, limits.digits)
    )
    without_strings = b"" if needs_only_quick_checks else _check_limits(text, limits)
    try:
        value = (_decode_small if len(text) <= SMALL_DOCUMENT_BYTES else _decode)(text)
        if len(text) > _MAX_REENCODED_BYTES:
            has_duplicate = _count_decoded_members(value) != _count(without_strings, b":")
        else:
            out = _encode(value)
            has_duplicate = out != text and count_members(out) != (
                without_strings.count(b":") if without_strings else count_members(text)
            )
    except DECODE_ERRORS as error:
        raise StrictJsonError(describe_decode_error(error)) from None
    if has_duplicate:
        raise StrictJsonError("an object has a duplicate key")


def exceeds_limit(raw: bytes | msgspec.Raw, limit: SizeLimit) -> bool:
    """Whether a document has more bytes or values than the limit. The document is not decoded."""
    return len(raw) > limit.bytes or has_more_values(raw, limit.values)


def has_more_values(raw: bytes | msgspec.Raw, values: int) -> bool:
    """Whether a document has more than `values` values. A value begins after a comma or an opening bracket."""
    if len(raw) <= values:
        return False
    text = bytes(raw)
    head = text[: 16 * values]  # enough to recognise a document that consists of tiny values
    if _count_values(head) > values and _strip_strings_within(head, values) is None:
        return True
    return (
        len(text) > len(head) and _count_values(text) > values and _strip_strings_within(text, values) is None
    )


def count_values(raw: bytes | msgspec.Raw) -> int:
    """Count the values of a valid document. An empty list or object counts as two values."""
    return 1 + _count_values(strip_strings(bytes(raw)))


def check_utf8(text: bytes | bytearray) -> None:
    """Raise UnicodeDecodeError unless the text is UTF-8."""
    if text.isascii():
        return
    decoder = getincrementaldecoder("utf-8")()
    for part in _slices(text):
        decoder.decode(part)
    decoder.decode(b"", final=True)


def is_nested_within(text: bytes, depth: int) -> bool:
    """Whether a valid document is nested at most `depth` levels deep."""
    # A level takes at least two bytes.
    if len(text) <= 2 * depth or _count(text, b"{", b"[") <= depth:
        return True
    return not _is_nested_deeper(strip_strings(text), depth)


def count_members(raw: bytes | msgspec.Raw) -> int:
    """Count the `"key": value` pairs of a valid document, at any depth."""
    return _count(strip_strings(bytes(raw)), b":")


def strip_strings(text: bytes) -> bytes:
    """Remove the strings from a valid document. Brackets, commas, colons, numbers and literals remain."""
    if len(text) <= _SLICE_BYTES:
        return b"".join(_remove_escapes(text).split(b'"')[::2])
    kept: list[bytes] = []
    rest = b""
    is_in_string = False
    for part in _slices(text):
        joined = rest + part
        backslashes = len(joined) - len(joined.rstrip(b"\\"))
        end = len(joined) - backslashes % 2  # do not cut an escape
        rest = joined[end:]
        pieces = _remove_escapes(joined[:end]).split(b'"')
        kept += pieces[is_in_string::2]
        is_in_string ^= len(pieces) % 2 == 0
    return b"".join(kept)


def _remove_escapes(text: bytes) -> bytes:
    return text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text


def describe_decode_error(error: BaseException) -> str:
    """Describe a decoding error, in words that may be shown to the sender."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case _:
            return str(error)


def _check_limits(text: bytes, limits: Limits) -> bytes:
    without_strings = _strip_strings_within(text, limits.values)
    if without_strings is None:
        raise StrictJsonError(f"it has more than {limits.values} values")
    if _has_long_number(without_strings, limits.digits):
        raise StrictJsonError(_too_many_digits(limits))
    if _has_many_extreme_numbers(without_strings):
        raise StrictJsonError(f"it has more than {_MAX_EXTREME_NUMBERS} numbers like 1e300")
    if _is_nested_deeper(without_strings, limits.depth):
        raise StrictJsonError(f"it is nested more than {limits.depth} levels deep")
    return without_strings


def _too_many_digits(limits: Limits) -> str:
    return f"a number has more than {limits.digits} digits"


def _has_long_number(text: bytes, digits: int) -> bool:
    """Whether the text has more than `digits` consecutive digits, even within a string."""
    if len(text) <= digits:
        return False
    too_long = b"0" * (digits + 1)
    if len(text) <= _SLICE_BYTES:
        # `find` is faster than `in`, which first tries to convert `too_long` to an integer.
        return text.translate(_TO_ZEROS).find(too_long) >= 0
    end_of_previous = b""
    for part in _slices(text):
        zeros = end_of_previous + part.translate(_TO_ZEROS)
        if too_long in zeros:
            return True
        end_of_previous = zeros[-digits:]
    return False


def _has_many_extreme_numbers(without_strings: bytes) -> bool:
    """Whether msgspec would take long to read the floats, for example for a tool with a `list[float]` argument."""
    if _count(without_strings, b"e", b"E") <= _MAX_EXTREME_NUMBERS:
        return False
    return (
        sum(len(_EXTREME_EXPONENT.findall(part)) for part in _slices(without_strings)) > _MAX_EXTREME_NUMBERS
    )


def _count_decoded_members(value: Json) -> int:
    """Count the members of all objects, at any depth. Unlike an encoder, this lets other threads run."""
    members = 0
    containers: list[Json] = [value]
    while containers:
        outer = containers.pop()
        if isinstance(outer, dict):
            members += len(outer)
            outer = outer.values()
        elif not isinstance(outer, list):
            continue
        containers += [inner for inner in outer if isinstance(inner, dict | list)]
    return members


def _strip_strings_within(text: bytes, values: int) -> bytes | None:
    """The document without its strings; None if it has more than `values` values."""
    # Count the quotes before splitting at them: millions of strings must not become millions of objects. A value has at most four
    # quotes: two of its key, and two of its own.
    if _count(text, b'"') - _count(text, rb"\"") > 4 * values:
        return None
    without_strings = strip_strings(text)
    return without_strings if _count_values(without_strings) <= values else None


def _count_values(text: bytes) -> int:
    return _count(text, b",", b"[", b"{")


def _count(text: bytes, *tokens: bytes) -> int:
    """Count the tokens. In a long text, a token of several bytes is not counted if it spans two slices."""
    if len(text) <= _SLICE_BYTES:
        return sum(map(text.count, tokens))
    return sum(part.count(token) for part in _slices(text) for token in tokens)


def _slices(text: bytes | bytearray) -> Iterator[bytes]:
    """Split a long text into parts. Between two parts, other threads can run, such as the event loop."""
    view = memoryview(text)
    for start in range(0, len(text), _SLICE_BYTES):
        if start:
            time.sleep(0)
        yield bytes(view[start : start + _SLICE_BYTES])


def _is_nested_deeper(without_strings: bytes, depth: int) -> bool:
    brackets = b"".join(part.translate(_TO_PARENTHESES, _NOT_BRACKETS) for part in _slices(without_strings))
    for _ in range(depth):
        if not brackets:
            return False
        inner = brackets.replace(b"()", b"")  # without the innermost pairs
        if len(inner) == len(brackets):
            break  # the brackets are not balanced, which the decoder reports
        brackets = inner
    return b"()" in brackets
