"""Reject patterns in a tool's types that a caller could use to stall the server (ReDoS).

The time that a Python regular expression takes can double with each character. Patterns run on the event loop, on text
that a model sends. So a pattern needs a `max_length`, must not contain a repetition or an alternation inside a repetition
(those of at most 16 times do not count), and must not refer back to a group.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

MAX_LENGTH = 1000
_FEW = 16  # repetitions that cannot take long


def check_patterns(tool: str, parameter: str, info: Any) -> None:
    """Raise BAD_TOOL if the type of a parameter contains a pattern that is not safe to run on untrusted text."""
    for text in _text_types(info, set()):
        if text.pattern is not None and (problem := _find_problem(text.pattern, text.max_length)):
            raise HoldfastError(codes.BAD_TOOL, f"The pattern of {parameter!r} of {tool!r} {problem}.")


def _text_types(info: Any, visited: set[int]) -> Iterator[msgspec.inspect.StrType]:
    """The text types in a type, also in the fields of nested objects. A type that contains itself is visited once."""
    if id(info) in visited:
        return
    visited.add(id(info))
    if isinstance(info, msgspec.inspect.StrType):
        yield info
        return
    inner = [getattr(info, part, None) for part in ("type", "item_type", "key_type", "value_type")]
    several = [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    fields = [field.type for field in getattr(info, "fields", ())]
    for part in (*inner, *several, *fields):
        if part is not None:
            yield from _text_types(part, visited)


def _find_problem(pattern: str, max_length: int | None) -> str:
    if max_length is None or max_length > MAX_LENGTH:
        return f"needs a max_length of at most {MAX_LENGTH}"
    try:
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]  # pyright: ignore
    except re.error as error:
        return f"is not a regular expression: {error}"
    return (
        "could take forever: it repeats a repetition or an alternation, or refers to a group"
        if _can_backtrack(parsed, repeated=False)
        else ""
    )


def _can_backtrack(parsed: Any, *, repeated: bool) -> bool:
    """Whether matching could take exponential time; `repeated` says that this part is inside a repetition."""
    for operation, argument in parsed:
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                _, most, inner = argument
                many = most > _FEW
                if (many and repeated) or _can_backtrack(inner, repeated=repeated or many):
                    return True
            case "BRANCH":
                if repeated or any(_can_backtrack(branch, repeated=False) for branch in argument[1]):
                    return True
            case "SUBPATTERN" | "ASSERT" | "ASSERT_NOT" | "ATOMIC_GROUP" as kind:
                inner = argument if kind == "ATOMIC_GROUP" else argument[-1]
                if _can_backtrack(inner, repeated=repeated):
                    return True
            case "GROUPREF" | "GROUPREF_EXISTS":
                return True
            case _:
                pass
    return False
