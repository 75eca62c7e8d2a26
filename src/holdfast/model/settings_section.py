"""The base class of the dataclasses that declare the settings, one for each section."""

from dataclasses import fields
from typing import Any, cast


class SettingsSection:
    """Has the comparison and the representation of a frozen dataclass. The decorator of a subclass says `eq=False, repr=False`.

    Every command declares all sections when it starts. Without this class, `dataclass` would generate and compile these methods for each
    section, which would slow down every command.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({values})"

    def _values(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
