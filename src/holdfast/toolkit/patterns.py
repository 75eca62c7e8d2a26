"""Reject patterns in a tool's types that a caller could use to stall the server (ReDoS).

The time that a Python regular expression takes can double with each character. Patterns run on the event loop, on text
that a model sends. So a repetition may not contain another repetition or an alternation, and the text must be bounded.
"""

import re
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

MAX_LENGTH = 1000


def check_patterns(tool: str, name: str, info: Any) -> None:
    """Raise BAD_TOOL if the type contains a pattern that is not safe to run on untrusted text."""
    if isinstance(info, msgspec.inspect.StrType):
        if info.pattern is not None and (problem := _problem(info.pattern, info.max_length)):
            raise HoldfastError(codes.BAD_TOOL, f"The pattern of {name!r} of {tool!r} {problem}.")
        return
    inner = [getattr(info, part, None) for part in ("type", "item_type", "key_type", "value_type")]
    several = [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    # Fields of nested objects count too. A type that contains itself is not followed.
    fields = getattr(info, "fields", ())
    for part in (*inner, *several, *(field.type for field in fields if field.type is not info)):
        if part is not None:
            check_patterns(tool, name, part)


def _problem(pattern: str, max_length: int | None) -> str:
    if max_length is None or max_length > MAX_LENGTH:
        return f"needs a max_length of at most {MAX_LENGTH}"
    try:
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]  # pyright: ignore
    except re.error as error:
        return f"is not a regular expression: {error}"
    return (
        "could take forever: it repeats a repetition or an alternation"
        if _can_backtrack(parsed, repeated=False)
        else ""
    )


def _can_backtrack(parsed: Any, *, repeated: bool) -> bool:
    for operation, argument in parsed:
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT":
                _, most, inner = argument
                many = most > 1
                if (many and repeated and most > 16) or _can_backtrack(inner, repeated=repeated or most > 16):
                    return True
            case "BRANCH":
                if repeated or any(_can_backtrack(branch, repeated=False) for branch in argument[1]):
                    return True
            case "SUBPATTERN":
                if _can_backtrack(argument[-1], repeated=repeated):
                    return True
            case "ASSERT" | "ASSERT_NOT":
                if _can_backtrack(argument[1], repeated=repeated):
                    return True
            case "GROUPREF" | "GROUPREF_EXISTS":
                return True
            case _:
                pass
    return False
