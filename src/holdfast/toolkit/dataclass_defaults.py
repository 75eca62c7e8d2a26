"""Copy the defaults of dataclasses from the class into the instance.

msgspec encodes only what the instance itself has. The instance lacks a default such as `count: int = 1` if msgspec decoded it,
or if the field has `init=False`. Without the copy, a result, `vars(…)` or a copy of an argument would lack the field.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from holdfast.toolkit.type_support import walk_types

_UNTYPED: tuple[Any, ...] = (Any, dict, list, tuple, set, frozenset)


def has_defaults(annotation: Any) -> bool:
    """Whether a type contains a dataclass with a default that is kept in the class."""
    return any(
        isinstance(part, type) and dataclasses.is_dataclass(part) and _default_names(part)
        for part in walk_types(annotation)
    )


def may_have_defaults(annotation: Any) -> bool:
    """Whether a value of the type may contain a dataclass with a default that is kept in the class."""
    return has_defaults(annotation) or any(part in _UNTYPED for part in walk_types(annotation))


def set_defaults(value: Any) -> None:
    """Set the missing fields of all dataclasses inside a value, which may be deep or contain itself."""
    left, seen = [value], set[int]()
    while left:
        value = left.pop()
        if isinstance(value, str | bytes | int | float | None) or id(value) in seen:
            continue
        seen.add(id(value))
        if dataclasses.is_dataclass(value):
            _complete(value)
            left += [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        elif isinstance(value, msgspec.Struct):
            left += [getattr(value, name, None) for name in value.__struct_fields__]
        elif isinstance(value, Mapping):
            left += cast("Mapping[Any, Any]", value).values()
        elif isinstance(value, list | tuple | set | frozenset):
            left += cast("Iterable[Any]", value)


def _complete(value: Any) -> None:
    """Copy the missing fields of one dataclass into its `__dict__`."""
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
