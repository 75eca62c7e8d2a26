"""An error as an editor is told of it: by the protocol's own names, and with what to do."""

from holdfast.model.errors import HoldfastError


def refusal(error: HoldfastError) -> HoldfastError:
    """The same error, for an editor."""
    named = {_NAMES.get(key, key): value for key, value in error.details.items()}
    return HoldfastError(error.code, error.message, **{"hint": error.code.hint, **named})


_NAMES = {"session_id": "sessionId"}
