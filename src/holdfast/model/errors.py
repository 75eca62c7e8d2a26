"""The error that callers can act on, and that for a missing attribute."""

from collections.abc import Mapping

from holdfast.model.codes import Code, named
from holdfast.model.json import Json

IT_IS_REQUIRED = "It is required"
"""The message about a missing argument. It is the same everywhere."""
WHY_SILENT = (
    "It ended without an error. If it is a Python file with a Toolbox, it probably does not call box.main()."
)
"""What to say about a server that exits with status 0, writes nothing and answers nothing."""


class HoldfastError(Exception):
    """An error that the caller can act on: a stable code, or its name, and a message for users."""

    def __init__(self, code: Code | str, message: str, **details: Json) -> None:
        super().__init__(message)
        self.code = named(code) if isinstance(code, str) else code
        self.message = message
        self.details = details
        if isinstance(hint := details.get("hint"), str):
            self.add_note(hint)  # a traceback shows it

    @property
    def hint(self) -> str:
        """What to do about it: the hint in the details, which fits this error, or else the hint of the code."""
        hint = self.details.get("hint")
        return hint if isinstance(hint, str) and hint else self.code.hint


def missing_attribute(thing: object, name: str, advice: Mapping[str, str]) -> AttributeError:
    """The error for `thing.name`. `advice` has what to write instead of names that other libraries use."""
    instead = f" Write: {advice[name]}" if name in advice else ""
    kind = type(thing).__name__
    return AttributeError(f"{kind!r} object has no attribute {name!r}.{instead}", name=name, obj=thing)
