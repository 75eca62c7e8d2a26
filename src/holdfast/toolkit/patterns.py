"""Reject patterns in a tool's types that a caller could use to stall the server (ReDoS).

The time that a Python regular expression takes can double with each character. Patterns run on the event loop, on text
that a model sends. So a pattern

* needs a `max_length` of at most 1000;
* must not have a repetition or an alternation inside another repetition (a repetition of at most 16 times is harmless,
  and does not count as one);
* must not refer to a group, by a back-reference or a condition.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.type_support import child_types

MAX_LENGTH = 1000
_MAX_HARMLESS_REPEATS = 16


def check_patterns(tool: str, parameter: str, info: Any) -> None:
    """Raise BAD_TOOL if the type of a parameter contains a pattern that is not safe to run on untrusted text."""
    for string_type in _string_types(info, set()):
        if string_type.pattern is not None:
            check_pattern(tool, parameter, string_type.pattern, string_type.max_length)


def check_pattern(tool: str, parameter: str, pattern: str, max_length: int | None) -> None:
    """Raise BAD_TOOL if a pattern is not safe to run on untrusted text of this length."""
    if problem := _find_problem(pattern, max_length):
        raise HoldfastError(
            codes.BAD_TOOL, f"The pattern of {parameter!r} of {tool!r} {problem}. It is: {pattern}"
        )


def _string_types(info: Any, visited: set[int]) -> Iterator[msgspec.inspect.StrType]:
    """All string types inside a type, also in nested objects. A type that contains itself is visited once."""
    if id(info) in visited:
        return
    visited.add(id(info))
    if isinstance(info, msgspec.inspect.StrType):
        yield info
        return
    for part in child_types(info):
        yield from _string_types(part, visited)


def _find_problem(pattern: str, max_length: int | None) -> str:
    """Why a pattern is not safe, as the end of a sentence; empty if it is safe."""
    if max_length is None or max_length > MAX_LENGTH:
        return f"needs a max_length of at most {MAX_LENGTH}"
    try:
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]  # pyright: ignore
    except re.error as error:
        return f"is not a regular expression: {error}"
    return (
        "could take forever: it repeats a repetition or an alternation, or it has a back-reference or a condition on a group"
        if _is_slow(parsed, repeated=False)
        else ""
    )


def _is_slow(parsed: Any, *, repeated: bool) -> bool:
    """Whether matching could take exponential time. `repeated` is True for a part that is inside a repetition."""
    for operation, argument in parsed:
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                _, most, inner = argument
                many = most > _MAX_HARMLESS_REPEATS
                if (many and repeated) or _is_slow(inner, repeated=repeated or many):
                    return True
            case "BRANCH":
                if repeated or any(_is_slow(branch, repeated=False) for branch in argument[1]):
                    return True
            case "SUBPATTERN" | "ASSERT" | "ASSERT_NOT" | "ATOMIC_GROUP" as kind:
                inner = argument if kind == "ATOMIC_GROUP" else argument[-1]
                if _is_slow(inner, repeated=repeated):
                    return True
            case "GROUPREF" | "GROUPREF_EXISTS":
                return True
            case _:
                pass
    return False
