"""A message's parameters as the shape they should have."""

from typing import TypeVar

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.frame import Notification, Request

T = TypeVar("T")


def read(message: Request | Notification, kind: type[T]) -> T:
    """The parameters; `_meta` and what else we do not know is left alone and changes nothing."""
    try:
        return msgspec.json.decode(message.params, type=kind)
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{message.method} cannot be read: {error}.") from None
