"""Decode the JSON of config files, which may have comments and trailing commas. The time is linear in the text."""

import re

import msgspec

from holdfast.model.json import Json
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.strict_json import StrictJsonError, check_json

# The patterns match even a string or comment without an end. Otherwise, the search would begin again at each byte of it.
_STRING = rb'("(?:[^"\\]++|\\.)*+"?)'
_COMMENT = re.compile(_STRING + rb"|//[^\n]*+|(/\*).*?(?:(\*/)|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(_STRING + rb"|,(?=\s*+[}\]])", re.DOTALL)


def decode_json_with_comments(text: bytes, limits: Limits = DEFAULT_LIMITS) -> Json:
    """Decode a config file. Raise the error of the strict decoder if it is not valid even without comments."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        return _decode_strict(text, limits)
    except StrictJsonError as error:
        bare = _TRAILING_COMMA.sub(lambda matched: matched[1] or b"", _COMMENT.sub(_without_comment, text))
        if bare == text:
            raise
        try:
            return _decode_strict(bare, limits)
        except StrictJsonError:
            raise error from None


def _without_comment(matched: re.Match[bytes]) -> bytes:
    string, opened, closed = matched.groups()
    if string or (opened and not closed):
        return matched[0]
    return b" "


def _decode_strict(text: bytes, limits: Limits) -> Json:
    check_json(text, limits)
    return msgspec.json.decode(text)
