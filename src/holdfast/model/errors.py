"""The error that callers can act on."""

from holdfast.model.codes import Code
from holdfast.model.json import Json


class HoldfastError(Exception):
    """An error that the caller can act on: a stable code and a message for users."""

    def __init__(self, code: Code, message: str, **details: Json) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details
