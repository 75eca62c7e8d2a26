"""The default of a parameter: a plain value, or one inside `Field(…)`, `field(…)` or a factory."""

import copy
import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Optional, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET

from holdfast.toolkit.type_support import unwrap_type

REQUIRED: Any = inspect.Parameter.empty
"""The default of a parameter that has none."""
_PLAIN_TYPES = (str, int, float, bool, NoneType)
_MSGSPEC_FIELD = type(cast("object", msgspec.field()))


class Default(msgspec.Struct, frozen=True):
    """The default of a parameter, and how it is made for each call."""

    value: Any = REQUIRED
    """REQUIRED if callers must send the argument; UNSET if there is a default that is not shown."""
    make: Callable[[], Any] | None = None
    """Makes the value for a call that does not send it; None if the handler's own default applies."""


class BadDefaultError(Exception):
    """A default is not understood. The message ends the sentence "The default of the argument …"."""


def read_default(annotation: Any, default: Any) -> tuple[Any, Default]:
    """Read a default. Return the annotation, with the constraints that the default adds to it, and the default itself.

    Raises `BadDefaultError` if the default is not a value for the argument and not a way to declare one.
    """
    if _is_pydantic_field(default):
        kind, found = Annotated[annotation, default], _read_pydantic_field(default)
    elif default is REQUIRED:
        kind, found = annotation, _find_annotated_default(annotation)
    elif isinstance(default, _MSGSPEC_FIELD | dataclasses.Field):
        kind, found = annotation, _read_field(default)
    elif default is Ellipsis:
        raise BadDefaultError("is `...`. Leave it out to make the argument required")
    else:
        kind, found = annotation, _plain_default(default)
    if found.value is None and not _accepts_none(kind):
        kind = _or_none(kind)
    return kind, found


def _or_none(annotation: Any) -> Any:
    """The type `annotation | None`, with the metadata of an `Annotated[…]` around the union: some of it may not be hashable."""
    if get_origin(annotation) is Annotated:
        kind, *metadata = get_args(annotation)
        return Annotated[(Optional[kind], *metadata)]  # noqa: UP045
    return Optional[annotation]  # noqa: UP045


def _plain_default(value: Any) -> Default:
    """A default that the handler has itself. A value that a handler could change is copied for each call."""
    if isinstance(value, _PLAIN_TYPES) or value is UNSET:
        return Default(value)
    return Default(value, partial(copy.deepcopy, value) if _is_mutable(value) else None)


def _field_default(value: Any, factory: Any) -> Default:
    """A default that the handler does not have itself, because its own default is a `Field(…)`."""
    if factory is not None:
        return Default(UNSET, factory)
    return Default(value, partial(copy.deepcopy, value))


def _is_mutable(value: Any) -> bool:
    """Whether a handler could change the value. An object that is hashed by its identity counts as mutable."""
    if isinstance(value, list | dict | set | bytearray) or not _is_hashable(value):
        return True
    return type(value).__hash__ is object.__hash__


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_pydantic_field(item: Any) -> bool:
    return type(item).__name__ == "FieldInfo" and type(item).__module__ == "pydantic.fields"


def _find_annotated_default(annotation: Any) -> Default:
    """The default of a pydantic `Field` in the annotation, as in `Annotated[int, Field(default=3)]`."""
    if get_origin(annotation) is Annotated:
        for item in get_args(annotation)[1:]:
            if _is_pydantic_field(item):
                found = _read_pydantic_field(item)
                if found.value is not REQUIRED:
                    return found
    return Default()


def _read_pydantic_field(field: Any) -> Default:
    for name in ("alias", "validation_alias"):
        if getattr(field, name) is not None:
            raise BadDefaultError(f"has {name}={getattr(field, name)!r}. Rename the parameter instead")
    if field.is_required():
        return Default()
    if field.default_factory_takes_validated_data:
        raise BadDefaultError("has a default_factory with a parameter. Use one without parameters")
    return _field_default(field.default, field.default_factory)


def _read_field(field: Any) -> Default:
    """Read `msgspec.field(…)` or `dataclasses.field(…)`."""
    if getattr(field, "name", None):
        raise BadDefaultError(f"has name={field.name!r}. Rename the parameter instead")
    missing = (NODEFAULT, dataclasses.MISSING)
    factory = None if field.default_factory in missing else field.default_factory
    if factory is None and field.default in missing:
        return Default()
    return _field_default(field.default, factory)


def _accepts_none(annotation: Any) -> bool:
    annotation = unwrap_type(annotation)
    if annotation in (Any, object, None, NoneType) or isinstance(annotation, TypeVar):
        return True
    members = get_args(annotation)
    if get_origin(annotation) is Literal:
        return None in members
    return get_origin(annotation) in (Union, UnionType) and any(map(_accepts_none, members))
