"""Copy the defaults of decoded dataclasses from the class into the instance.

msgspec leaves a default such as `count: int = 1` in the class, but encodes only what the instance itself has. Without the copy,
a result, `vars(…)` or a copy of an argument would lack the fields that the caller left out.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from holdfast.toolkit.type_support import walk_types


def has_defaults(annotation: Any) -> bool:
    """Whether a type contains a dataclass with a default that is kept in the class."""
    return any(
        isinstance(part, type) and dataclasses.is_dataclass(part) and _default_names(part)
        for part in walk_types(annotation)
    )


def set_defaults(value: Any) -> None:
    """Set the missing fields of all dataclasses inside a decoded value."""
    if isinstance(value, str | bytes | int | float | None):
        return
    if dataclasses.is_dataclass(value):
        _complete(value)
        _set_in(getattr(value, field.name, None) for field in dataclasses.fields(value))
    elif isinstance(value, msgspec.Struct):
        _set_in(getattr(value, name, None) for name in value.__struct_fields__)
    elif isinstance(value, Mapping):
        _set_in(cast("Mapping[Any, Any]", value).values())
    elif isinstance(value, list | tuple | set | frozenset):
        _set_in(cast("Iterable[Any]", value))


def _set_in(values: Iterable[Any]) -> None:
    for value in values:
        set_defaults(value)


def _complete(value: Any) -> None:
    members: dict[str, Any] | None = getattr(value, "__dict__", None)
    if members is None or all(name in members for name in _default_names(type(value))):
        return
    names = (field.name for field in dataclasses.fields(value))
    fields = {name: getattr(value, name) for name in names if hasattr(value, name)}
    rest = dict(members)
    members.clear()  # fields are encoded in the order of this dict
    members |= {**fields, **rest}


def _default_names(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING]
