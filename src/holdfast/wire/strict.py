"""Read JSON strictly: no duplicate key, no abyss, no endless number, no broken text.

Every check is a handful of C-speed passes over the bytes. The trick for duplicate keys: a decoder
keeps one of two equal keys, so a document that comes out of a decoder with fewer members than it
went in with had a duplicate. Most documents come out byte for byte as they went in, which proves
them clean at once.
"""

import re
from typing import Any, TypeVar

import msgspec

from holdfast.model.limits import Limits

T = TypeVar("T")

# How a decoder says no: bad syntax, a wrong shape, broken UTF-8, or nesting past its own stack.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_decode = msgspec.json.Decoder[Any](Any).decode
_encode = msgspec.json.Encoder().encode

_OPEN, _CLOSE = b"[{", b"]}"
_ROUND = bytes.maketrans(_OPEN + _CLOSE, b"(())")
_NOT_BRACKETS = bytes(set(range(256)) - set(_OPEN + _CLOSE))


class Unreadable(ValueError):
    """JSON that we will not read; the text says why and may be shown to whoever sent it."""


def read(raw: bytes | msgspec.Raw, kind: type[T], limits: Limits) -> T:
    """Decode a document strictly into a type."""
    check(raw, limits)
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise Unreadable(why(error)) from None


def check(raw: bytes | msgspec.Raw, limits: Limits) -> None:
    """Raise `Unreadable` unless the document is within the limits and means the same to every reader."""
    text = bytes(raw)
    small = len(text) <= limits.digits and text.count(b"{") + text.count(b"[") <= limits.depth
    bare = b"" if small else _within(text, limits)
    try:
        out = _encode(_decode(text))
    except DECODE_ERRORS as error:
        raise Unreadable(why(error)) from None
    if out != text and members(out) != (bare.count(b":") if bare else members(text)):
        raise Unreadable("the same key stands twice in one object")


def nested_within(text: bytes, depth: int) -> bool:
    """Whether a well-formed document is nested no deeper than this."""
    if text.count(b"{") + text.count(b"[") <= depth:
        return True
    return not _is_deeper(outside_strings(text), depth)


def members(text: bytes) -> int:
    """How many `"key": value` pairs a well-formed document has, at any depth."""
    return outside_strings(text).count(b":")


def outside_strings(text: bytes) -> bytes:
    """A well-formed document without its strings: brackets, commas, colons, numbers and words are left."""
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text
    return b"".join(unescaped.split(b'"')[::2])


def why(error: BaseException) -> str:
    """What a decoder did not like, in words that may be shown to whoever sent it."""
    match error:
        case RecursionError():
            return "it is nested too deep"
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case _:
            return str(error)


def _within(text: bytes, limits: Limits) -> bytes:
    # Quotes are counted before they are cut at: a flood of strings must not become a flood of objects.
    if text.count(b'"') - text.count(rb"\"") > 4 * limits.values:
        raise Unreadable(_too_many(limits))
    bare = outside_strings(text)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > limits.values:
        raise Unreadable(_too_many(limits))
    if re.search(rb"[0-9]{%d}" % (limits.digits + 1), bare):
        raise Unreadable(f"a number has more than {limits.digits} digits")
    if _is_deeper(bare, limits.depth):
        raise Unreadable(f"it is nested more than {limits.depth} deep")
    return bare


def _is_deeper(bare: bytes, depth: int) -> bool:
    brackets = bare.translate(_ROUND, _NOT_BRACKETS)
    for _ in range(depth):
        if not brackets:
            return False
        inner = brackets.replace(b"()", b"")
        if len(inner) == len(brackets):
            break  # not balanced: the decoder will say so
        brackets = inner
    return b"()" in brackets


def _too_many(limits: Limits) -> str:
    return f"it has more than {limits.values} values"
