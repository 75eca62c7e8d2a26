"""Patterns of a tool's own that a caller could use to stop the server.

Python's regular expressions can take time that doubles with each character. A pattern runs on whatever a model
sends, on the event loop. So a repetition may not stand inside a repetition, nor a choice between words, and what a
pattern is tried on has a length.
"""

import re
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

LONGEST = 1000


def check_patterns(tool: str, name: str, info: Any) -> None:
    """Raise for a pattern, anywhere in the type, that is not safe to run on a stranger's text."""
    if isinstance(info, msgspec.inspect.StrType):
        if info.pattern is not None and (problem := _problem(info.pattern, info.max_length)):
            raise HoldfastError(codes.BAD_TOOL, f"The pattern of {name!r} of {tool!r} {problem}.")
        return
    inner = [getattr(info, part, None) for part in ("type", "item_type", "key_type", "value_type")]
    several = [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    # What a field of a nested object may hold counts too; an object that holds itself is looked at once.
    fields = getattr(info, "fields", ())
    for part in (*inner, *several, *(field.type for field in fields if field.type is not info)):
        if part is not None:
            check_patterns(tool, name, part)


def _problem(pattern: str, max_length: int | None) -> str:
    if max_length is None or max_length > LONGEST:
        return f"needs a max_length of at most {LONGEST} beside it"
    try:
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]  # pyright: ignore
    except re.error as error:
        return f"is no regular expression: {error}"
    return (
        "could take for ever: it repeats a repetition, or a choice"
        if _explodes(parsed, repeated=False)
        else ""
    )


def _explodes(parsed: Any, *, repeated: bool) -> bool:
    for operation, argument in parsed:
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT":
                _, most, inner = argument
                many = most > 1
                if (many and repeated and most > 16) or _explodes(inner, repeated=repeated or most > 16):
                    return True
            case "BRANCH":
                if repeated or any(_explodes(branch, repeated=False) for branch in argument[1]):
                    return True
            case "SUBPATTERN":
                if _explodes(argument[-1], repeated=repeated):
                    return True
            case "ASSERT" | "ASSERT_NOT":
                if _explodes(argument[1], repeated=repeated):
                    return True
            case "GROUPREF" | "GROUPREF_EXISTS":
                return True
            case _:
                pass
    return False
