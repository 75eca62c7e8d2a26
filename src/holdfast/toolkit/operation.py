"""What kind of thing a tool does: for guards and hints, never shown to the agent."""

from enum import StrEnum

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.annotations import Annotations


class Operation(StrEnum):
    """The closed list of operation types."""

    COMMAND = "command"
    QUERY = "query"
    EVAL = "eval"
    SCREENSHOT = "screenshot"
    LOGS = "logs"
    DIALOG = "dialog"
    WINDOW_INFO = "window_info"

    @property
    def mutates(self) -> bool:
        """Whether it may change something: such a call is taken once per token."""
        return self not in _LOOKS

    @property
    def annotations(self) -> Annotations:
        """What clients are told unless the author says otherwise."""
        match self:
            case Operation.COMMAND:
                return Annotations(read_only=False, destructive=True, idempotent=False, open_world=False)
            case Operation.EVAL:
                return Annotations(read_only=False, destructive=True, idempotent=False, open_world=True)
            case Operation.DIALOG:
                return Annotations(read_only=False, destructive=False, idempotent=False, open_world=False)
            case Operation.QUERY | Operation.SCREENSHOT | Operation.LOGS | Operation.WINDOW_INFO:
                return Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)


_LOOKS = frozenset({Operation.QUERY, Operation.SCREENSHOT, Operation.LOGS, Operation.WINDOW_INFO})


def parse_operation(word: str) -> Operation:
    """The operation type of this name."""
    try:
        return Operation(word)
    except ValueError:
        raise HoldfastError(
            codes.BAD_TOOL, f"{str(word)[:80]!r} is no operation type. Use one of: {', '.join(Operation)}."
        ) from None
