"""Checks the fields of the classes inside an argument's type: each annotation and each default is understood, or refused."""

import dataclasses
from collections.abc import Iterator
from enum import Enum
from types import NoneType
from typing import Annotated, Any, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET, Meta

from holdfast.toolkit.schema_details import read_field_types
from holdfast.toolkit.type_support import (
    UnsupportedTypeError,
    is_pydantic_marker,
    walk_annotation,
    walk_types,
)

_PLAIN_TYPES = (str, int, float, bool, NoneType, Enum)


class _Field(msgspec.Struct, frozen=True):
    """A field of a class, with its place for messages."""

    place: str
    annotation: Any
    default: Any = UNSET
    """UNSET if there is none, or if a factory makes it."""
    has_init: bool = True


def check_field_annotations(annotation: Any) -> None:
    """Raise `UnsupportedTypeError` for an object in the annotation of a field that the toolkit does not know."""
    for field in _fields_inside(annotation):
        for part in walk_annotation(field.annotation):
            for item in get_args(part)[1:] if get_origin(part) is Annotated else ():
                if not is_known_metadata(item):
                    raise UnsupportedTypeError(
                        f"the toolkit does not know {type(item).__name__} in the annotation of the field {field.place}"
                    )


def is_known_metadata(item: Any) -> bool:
    """Whether an object in `Annotated[…]` says something that the toolkit reads."""
    # pydantic's conint(…) and the like have a None for each limit that was not given.
    return isinstance(item, str | Meta | None) or hasattr(item, "documentation") or is_pydantic_marker(item)


def check_field_values(annotation: Any, *, uses_pydantic: bool) -> None:
    """Raise `UnsupportedTypeError` for a field whose default is not JSON, or which the class sets itself."""
    for field in _fields_inside(annotation):
        if not field.has_init:  # msgspec would accept the caller's value, and pydantic would drop it silently
            raise UnsupportedTypeError(
                f"the field {field.place} has init=False, so no caller may set it. Use a property in its place"
            )
        if field.default is None or field.default is UNSET:
            continue
        if uses_pydantic:
            _check_with_pydantic(field)
        else:
            _check_with_msgspec(field)


def _check_with_msgspec(field: _Field) -> None:
    try:
        msgspec.convert(msgspec.to_builtins(field.default, str_keys=True), field.annotation)
    except msgspec.ValidationError as error:
        if ", got `" in str(error):  # else the default is outside of the limits that hold for callers
            raise UnsupportedTypeError(
                f"the default of the field {field.place} is not of its type: {error}"
            ) from None
    except (TypeError, ValueError):
        raise _not_json(field) from None


def _check_with_pydantic(field: _Field) -> None:
    if isinstance(field.default, _PLAIN_TYPES):
        return
    from holdfast.toolkit import pydantic_types

    if not pydantic_types.is_json(field.annotation, field.default):
        raise _not_json(field)


def _not_json(field: _Field) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"the default of the field {field.place} is a {type(field.default).__name__}, which is not a JSON value. "
        "Use a JSON value, or a factory"
    )


def _fields_inside(annotation: Any) -> Iterator[_Field]:
    visited: set[type] = set()
    for part in walk_types(annotation):
        if isinstance(part, type) and part not in visited:
            visited.add(part)
            yield from _fields_of(part)


def _fields_of(kind: Any) -> Iterator[_Field]:
    """The fields of a dataclass, a struct, a pydantic model, a `TypedDict` or a named tuple."""
    if isinstance(models := getattr(kind, "__pydantic_fields__", None), dict):
        for name, field in cast("dict[str, Any]", models).items():
            hint = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
            default = UNSET if field.is_required() or field.default_factory is not None else field.default
            yield _Field(_place(kind, name), hint, default, has_init=field.init is not False)
        return
    hints = read_field_types(kind)
    defaults: dict[str, Any] = dict.fromkeys(hints, UNSET)
    without_init: set[str] = set()
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        defaults = {field.name: field.default for field in fields}
        without_init = {field.name for field in fields if not field.init}
    elif issubclass(kind, msgspec.Struct):
        defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    elif isinstance(found := getattr(kind, "_field_defaults", None), dict):
        defaults |= cast("dict[str, Any]", found)
    for name, default in defaults.items():
        missing = default is dataclasses.MISSING or default is NODEFAULT
        yield _Field(
            _place(kind, name),
            hints.get(name, Any),
            UNSET if missing else default,
            has_init=name not in without_init,
        )


def _place(kind: Any, name: str) -> str:
    return f"{name!r} of {kind.__name__}"
