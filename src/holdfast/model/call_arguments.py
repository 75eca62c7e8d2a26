"""The types that an application may pass as the arguments of a call."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeAlias


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _PydanticModel(Protocol):
    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, Any]: ...


Arguments: TypeAlias = Mapping[str, Any] | _Dataclass | _PydanticModel
"""The arguments of a call. Values in a mapping may also be dataclasses and pydantic models."""
