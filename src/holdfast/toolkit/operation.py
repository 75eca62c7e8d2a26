"""The operation type of a tool, and the MCP hints that follow from it. Clients see the hints and not the type."""

from enum import StrEnum

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError


class Annotations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """MCP's hints about a tool. For a hint that is None, the operation type decides."""

    read_only: bool | None = msgspec.field(default=None, name="readOnlyHint")
    destructive: bool | None = msgspec.field(default=None, name="destructiveHint")
    idempotent: bool | None = msgspec.field(default=None, name="idempotentHint")
    open_world: bool | None = msgspec.field(default=None, name="openWorldHint")

    def with_defaults(self, defaults: "Annotations") -> "Annotations":
        """These hints, with the defaults filled in where a hint is None. A tool that only reads is not destructive."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if self.read_only:
            given.setdefault("destructive", False)
        return msgspec.structs.replace(defaults, **given)


NO_HINTS = Annotations()


class Operation(StrEnum):
    """The operation types. Tools cannot add others."""

    COMMAND = "command"
    """The tool changes something. Hints: not read-only, destructive."""
    QUERY = "query"
    """The tool only reads. Hints: read-only, idempotent."""
    EVAL = "eval"
    """The tool runs code that the caller sends. Hints: not read-only, destructive, open world."""
    SCREENSHOT = "screenshot"
    """The tool returns a picture of what the server drives. Hints: as for a query."""
    LOGS = "logs"
    """The tool returns log lines of what the server drives. Hints: as for a query."""
    DIALOG = "dialog"
    """The tool opens, answers or closes a dialog of what the server drives. Hints: not read-only, not destructive."""
    WINDOW_INFO = "window_info"
    """The tool describes windows of what the server drives: title, size, position. Hints: as for a query."""

    @property
    def mutates(self) -> bool:
        """Whether a call may change something. Over HTTP with tokens, such a call needs an unused token."""
        return self not in _READ_ONLY

    @property
    def annotations(self) -> Annotations:
        """The default hints of this operation type."""
        match self:
            case Operation.COMMAND:
                return Annotations(read_only=False, destructive=True, idempotent=False, open_world=False)
            case Operation.EVAL:
                return Annotations(read_only=False, destructive=True, idempotent=False, open_world=True)
            case Operation.DIALOG:
                return Annotations(read_only=False, destructive=False, idempotent=False, open_world=False)
            case Operation.QUERY | Operation.SCREENSHOT | Operation.LOGS | Operation.WINDOW_INFO:
                return Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)


_READ_ONLY = frozenset({Operation.QUERY, Operation.SCREENSHOT, Operation.LOGS, Operation.WINDOW_INFO})


def parse_operation(name: str) -> Operation:
    """The operation type with this name; raises BAD_TOOL when there is none."""
    try:
        return Operation(name)
    except ValueError:
        raise HoldfastError(
            codes.BAD_TOOL,
            f"{str(name)[:80]!r} is not an operation type. Use one of: {', '.join(Operation)}.",
        ) from None
