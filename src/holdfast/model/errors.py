"""The failure a caller can act on."""

from holdfast.model.codes import Code
from holdfast.model.json import Json


class HoldfastError(Exception):
    """Something went wrong that the caller can do something about: a stable code and a clear sentence."""

    def __init__(self, code: Code, message: str, **details: Json) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details
