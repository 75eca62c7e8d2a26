"""Why a token was refused."""

from typing import Literal, TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

Reason: TypeAlias = Literal[
    "too_long",
    "malformed",
    "algorithm",
    "unknown_key",
    "signature",
    "claims",
    "issuer",
    "audience",
    "future",
    "expired",
    "lifetime",
    "request",
]


def refused(reason: Reason, message: str) -> HoldfastError:
    """The refusal to raise; its message never repeats anything of the token."""
    return HoldfastError(codes.BAD_TOKEN, message, reason=reason)
