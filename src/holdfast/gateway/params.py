"""Read the members of a request's params, without decoding what is only passed on."""

from collections.abc import Mapping

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.messages import Raw
from holdfast.wire.strict_json import DECODE_ERRORS, make_decoder

MAX_URI = 8192
"""How many characters the URI of a resource or a template may have."""
_decode_members = make_decoder(dict[str, Raw])
_decode_text = make_decoder(str)


def read_members(params: Raw) -> dict[str, Raw]:
    """The members of an object."""
    try:
        return _decode_members(params)
    except DECODE_ERRORS:
        raise HoldfastError(codes.BAD_ARGUMENT, "The params must be an object.") from None


def read_text(members: Mapping[str, Raw], key: str) -> str:
    """A member that must be a string."""
    if key not in members:
        raise HoldfastError(codes.BAD_ARGUMENT, f"The params must have {key!r}.")
    return decode_text(members[key], key)


def read_uri(members: Mapping[str, Raw]) -> str:
    """The member `uri`. Raise if it is too long."""
    uri = read_text(members, "uri")
    if len(uri) > MAX_URI:
        raise HoldfastError(codes.TOO_LARGE, f"A URI may have at most {MAX_URI} characters.")
    return uri


def decode_text(raw: Raw, key: str) -> str:
    """A string. `key` is its name, for the error."""
    try:
        return _decode_text(raw)
    except DECODE_ERRORS:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{key!r} must be a string.") from None
