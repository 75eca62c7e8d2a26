"""The base class of the sections of the settings."""

from dataclasses import fields
from typing import Any, cast


class SettingsSection:
    """A frozen dataclass that is made quickly. Its decorator says `eq=False, repr=False`.

    Every command declares all sections when it starts. A dataclass generates and compiles its methods, and comparison and
    representation are two thirds of that time.
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
