"""Decode JSON strictly: no duplicate keys, no deep nesting, no huge numbers, no invalid UTF-8.

Every check is a few passes over the bytes, in C. To find duplicate keys, a document is decoded and encoded again: the
decoder keeps only one of two equal keys, so the result has fewer members. If the result is the same as the document,
which is usual, there are no duplicates and nothing needs to be counted.
"""

import re
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from holdfast.model.limits import Budget, Limits

T = TypeVar("T")

# What a decoder raises for bad syntax, a wrong type, invalid UTF-8, or nesting too deep for the stack.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_decode = msgspec.json.Decoder[Any](Any).decode
_encode = msgspec.json.Encoder().encode

_SLICE_BYTES = 256 * 1024
_OPEN, _CLOSE = b"[{", b"]}"
_TO_PARENTHESES = bytes.maketrans(_OPEN + _CLOSE, b"(())")
_NOT_BRACKETS = bytes(set(range(256)) - set(_OPEN + _CLOSE))


class StrictJsonError(ValueError):
    """The JSON is invalid or over a limit. The message may be shown to the sender."""


def decode_strict(raw: bytes | msgspec.Raw, kind: type[T], limits: Limits) -> T:
    """Check a document and decode it into a type."""
    check_json(raw, limits)
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise StrictJsonError(describe_decode_error(error)) from None


def check_json(raw: bytes | msgspec.Raw, limits: Limits) -> None:
    """Raise `StrictJsonError` unless the document is valid, within the limits and without duplicate keys."""
    text = bytes(raw)
    small = len(text) <= limits.digits and _count(text, b"{", b"[") <= limits.depth
    without_strings = b"" if small else _check_limits(text, limits)
    try:
        out = _encode(_decode(text))
    except DECODE_ERRORS as error:
        raise StrictJsonError(describe_decode_error(error)) from None
    if out != text and count_members(out) != (
        without_strings.count(b":") if without_strings else count_members(text)
    ):
        raise StrictJsonError("an object has a duplicate key")


def exceeds_budget(raw: bytes | msgspec.Raw, budget: Budget) -> bool:
    """Whether a document has more bytes or values than the budget. The document is not decoded."""
    return len(raw) > budget.bytes or has_more_values(raw, budget.values)


def has_more_values(raw: bytes | msgspec.Raw, values: int) -> bool:
    """Whether a document has more values than this. A value begins after a comma or an opening bracket."""
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
    """Count the values of a valid document. An empty list or object counts as two."""
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
    """Whether a valid document is nested at most this deep."""
    if _count(text, b"{", b"[") <= depth:
        return True
    return not _is_nested_deeper(strip_strings(text), depth)


def count_members(text: bytes) -> int:
    """Count the `"key": value` pairs of a valid document, at any depth."""
    return strip_strings(text).count(b":")


def strip_strings(text: bytes) -> bytes:
    """Remove the strings from a valid document. Brackets, commas, colons, numbers and literals remain."""
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text
    return b"".join(unescaped.split(b'"')[::2])


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
    # Only the first digit of a number begins a match: otherwise many long numbers would cost `digits` steps per byte.
    if re.search(rb"(?<![0-9])[0-9]{%d}" % (limits.digits + 1), without_strings):
        raise StrictJsonError(f"a number has more than {limits.digits} digits")
    if _is_nested_deeper(without_strings, limits.depth):
        raise StrictJsonError(f"it is nested more than {limits.depth} levels deep")
    return without_strings


def _strip_strings_within(text: bytes, values: int) -> bytes | None:
    """The document without its strings; None if it has more values than this."""
    # Count the quotes before splitting at them: millions of strings must not become millions of objects.
    if _count(text, b'"') - _count(text, rb"\"") > 4 * values:
        return None
    without_strings = strip_strings(text)
    return without_strings if _count_values(without_strings) <= values else None


def _count_values(text: bytes) -> int:
    return _count(text, b",", b"[", b"{")


def _count(text: bytes, *tokens: bytes) -> int:
    """Count the tokens. The count of a long text is approximate: a token that spans two slices is not counted."""
    if len(text) <= _SLICE_BYTES:
        return sum(map(text.count, tokens))
    return sum(part.count(token) for part in _slices(text) for token in tokens)


def _slices(text: bytes | bytearray) -> Iterator[bytes]:
    """Split a long text into parts. Between two parts, other threads can run, such as the event loop."""
    view = memoryview(text)
    for start in range(0, len(text), _SLICE_BYTES):
        yield bytes(view[start : start + _SLICE_BYTES])
        time.sleep(0)


def _is_nested_deeper(without_strings: bytes, depth: int) -> bool:
    brackets = without_strings.translate(_TO_PARENTHESES, _NOT_BRACKETS)
    for _ in range(depth):
        if not brackets:
            return False
        inner = brackets.replace(b"()", b"")  # without the innermost pairs
        if len(inner) == len(brackets):
            break  # the brackets are not balanced, which the decoder reports
        brackets = inner
    return b"()" in brackets
