"""Check the strings among the options of an application, such as the id of a session's user."""

from collections.abc import Iterable
from typing import cast

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_MAX_USER_ID = 1024  # characters: the id is in the environment of each server, and in each signed token


def parse_user_id(user_id: object) -> str | None:
    """Check the id of a user and return it. None and an empty string mean no user."""
    return None if user_id in (None, "") else parse_text("user_id", user_id, limit=_MAX_USER_ID)


def parse_text(name: str, text: object, *, limit: int | None = None) -> str:
    """Return the option `name` if it is a string that can be stored and sent to servers; otherwise raise BAD_ARGUMENT."""
    if not isinstance(text, str):
        raise bad_type(name, "a string", text)
    if "\0" in text or not _is_encodable(text):
        reason = f"`{name}` must be valid Unicode, without a NUL character."
        raise HoldfastError(codes.BAD_ARGUMENT, reason)
    if limit is not None and len(text) > limit:
        reason = f"`{name}` has {len(text)} characters, more than {limit}. Shorten it."
        raise HoldfastError(codes.BAD_ARGUMENT, reason)
    return text


def parse_texts(name: str, texts: object) -> tuple[str, ...]:
    """Like `parse_text`, for a list of strings. A single string is refused: it would be read as a list of its characters."""
    if isinstance(texts, str):
        raise HoldfastError(codes.BAD_ARGUMENT, f"`{name}` must be a list of strings, not one string.")
    if not isinstance(texts, Iterable):
        raise bad_type(name, "a list of strings", texts)
    return tuple(parse_text(name, text) for text in cast("Iterable[object]", texts))


def bad_type(name: str, expected: str, value: object) -> HoldfastError:
    """The error for an option of the wrong type."""
    return HoldfastError(
        codes.BAD_ARGUMENT, f"`{name}` must be {expected}, not a value of the type {type(value).__name__}."
    )


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
