"""`HoldfastError`, and advice for attributes that a class does not have."""

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from holdfast.model.codes import Code, named
from holdfast.model.json import Json
from holdfast.model.visible_text import escape_hidden

T = TypeVar("T")

IT_IS_REQUIRED = "It is required"
"""The message about a missing argument of a tool, or a missing answer in a form."""
WHY_SILENT = (
    "It ended without an error. If it is a Python file with a Toolbox, it probably does not call box.main()."
)
"""What to say about a server that exits with status 0, writes nothing and answers nothing."""


class HoldfastError(Exception):
    """An error that the caller can act on: a stable code, which may be given by its name, and a message for users.

    Control characters and invisible ones are escaped in the message, because it may contain a name or a path.
    """

    has_own_words = True
    """Whether the message was written by Holdfast. The words of a server or a tool's author are not changed."""

    def __init__(self, code: Code | str, message: str, **details: Json) -> None:
        message = escape_hidden(message) if self.has_own_words else message
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


def advise_about_names(advice: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """A decorator for a class. If code reads one of the names in `advice`, which other libraries use, the error says what to write instead.

    A class with `__getattr__` would do the same, but would read all of its attributes more slowly.
    """

    def add(kind: type[T]) -> type[T]:
        for name, instead in advice.items():
            if hasattr(kind, name):
                raise TypeError(f"{kind.__name__} has the attribute {name!r}.")
            setattr(kind, name, _MissingName(name, instead))
        return kind

    return add


class _MissingName:
    def __init__(self, name: str, instead: str) -> None:
        self._name = name
        self._instead = instead

    def __get__(self, thing: object, kind: type) -> NoReturn:
        message = f"{kind.__name__!r} object has no attribute {self._name!r}. Write: {self._instead}"
        raise AttributeError(message, name=self._name, obj=thing)
