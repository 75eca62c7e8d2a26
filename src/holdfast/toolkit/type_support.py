"""Which library handles a type: msgspec, or pydantic if the type has pydantic parts or if msgspec does not support it."""

import dataclasses
import operator
import sys
from collections.abc import Iterator
from types import GenericAlias, UnionType
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    NewType,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

Library: TypeAlias = Literal["msgspec", "pydantic"]

SIMPLE_TYPES = frozenset[Any]({str, int, float, bool, dict, list})
_PYDANTIC_PACKAGES = ("pydantic", "annotated_types")
# Attributes of classes with declared fields: dataclasses, structs, pydantic models, attrs classes, named tuples.
_FIELD_NAMES = (
    "__dataclass_fields__",
    "__struct_fields__",
    "__pydantic_fields__",
    "__attrs_attrs__",
    "_field_defaults",
)
_CORE_SCHEMA_NAMES = ("__pydantic_core_schema__", "__get_pydantic_core_schema__")


class UnsupportedTypeError(Exception):
    """Neither library supports a type. The message says why, without a full stop."""


def find_library(annotation: Any) -> Library:
    """The library that handles a type; raises `UnsupportedTypeError` if none does."""
    if is_simple(annotation):
        return "msgspec"
    parts = list(walk_types(annotation))
    if any(map(is_pydantic_marker, parts)):
        if any(isinstance(part, type) and issubclass(part, msgspec.Struct) for part in parts):
            raise UnsupportedTypeError("it mixes types of msgspec and pydantic")
        _check_pydantic(annotation)
        return "pydantic"
    problem = _find_msgspec_problem(annotation)
    if not problem:
        return "msgspec"
    if not _is_pydantic_installed():
        raise UnsupportedTypeError(problem)
    try:
        _check_pydantic(annotation)
    except UnsupportedTypeError:
        raise UnsupportedTypeError(problem) from None
    return "pydantic"


def is_simple(annotation: Any) -> bool:
    """Whether msgspec certainly supports a type. Most types of arguments are simple, and the full check would slow every start."""
    return annotation is Any or (isinstance(annotation, type) and annotation in SIMPLE_TYPES)


def walk_annotation(annotation: Any, inside: tuple[Any, ...] = ()) -> Iterator[Any]:
    """The annotation and all its parts, but not the fields of classes. A type alias is followed to the type that it stands for.

    `inside` are the type aliases that were followed to get here.
    """
    yield annotation
    if isinstance(annotation, type) or annotation in inside:
        return  # a class, or a type alias that contains itself
    if (aliased := _aliased_type(annotation)) is not None:
        yield from walk_annotation(aliased, (*inside, annotation))
    for part in get_args(annotation):
        yield from walk_annotation(part, inside)


def expand_aliases(annotation: Any) -> Any:
    """The annotation with each type alias and each `NewType` replaced by the type that it stands for.

    A type alias that contains itself or a string stays: the library that handles the type reads it.
    """
    if isinstance(annotation, type):
        return annotation
    aliased = _aliased_type(annotation)
    if aliased is not None:
        stays = annotation in walk_annotation(aliased, (annotation,)) or _has_string(aliased)
        return annotation if stays else expand_aliases(aliased)
    parts = get_args(annotation)
    expanded = tuple(map(expand_aliases, parts))
    return annotation if all(map(operator.is_, parts, expanded)) else rebuild(annotation, expanded)


def _aliased_type(annotation: Any) -> Any:
    """The type that a type alias or a `NewType` stands for; None for other types."""
    if isinstance(annotation, NewType):
        return annotation.__supertype__
    alias = get_origin(annotation) or annotation
    if type(alias).__name__ != "TypeAliasType":
        return None
    try:
        return alias.__value__ if alias is annotation else alias.__value__[get_args(annotation)]
    except NameError:
        return None  # the library that handles the type reports it


def _has_string(annotation: Any) -> bool:
    """Whether a part of a type is written as a string, as in `list["Tree"]`."""
    if isinstance(annotation, str | ForwardRef):
        return True
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    return any(map(_has_string, parts[:1] if get_origin(annotation) is Annotated else parts))


def unwrap_type(annotation: Any) -> Any:
    """The annotation without `Annotated[…]` and without the name of a type alias."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif (aliased := _aliased_type(annotation)) is not None:
            annotation = aliased
        else:
            return annotation


def is_typed_dict(kind: Any) -> bool:
    """Whether a class is a `TypedDict` of `typing` or of `typing_extensions`."""
    return isinstance(kind, type) and issubclass(cast("type[Any]", kind), dict) and hasattr(kind, "__total__")


def replace_object(annotation: Any) -> Any:
    """The annotation with `Any` instead of `object`: both mean any value, but msgspec knows only one of them."""
    if annotation is object:
        return Any
    if not any(part is object for part in walk_annotation(annotation)):
        return annotation
    return rebuild(annotation, tuple(map(replace_object, get_args(annotation))))


def rebuild(annotation: Any, parts: tuple[Any, ...]) -> Any:
    """The annotation with other parts."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return Annotated[parts]
    if origin in (Union, UnionType):
        return Union[parts]  # noqa: UP007
    if isinstance(annotation, GenericAlias):
        return GenericAlias(cast("type", origin), parts)
    return annotation.copy_with(parts) if hasattr(annotation, "copy_with") else annotation


def is_pydantic_marker(item: object) -> bool:
    """Whether an object in an annotation is a type or a constraint of pydantic."""
    kind: type[Any] = cast("type[Any]", item) if isinstance(item, type) else type(item)
    return kind.__module__.partition(".")[0] in _PYDANTIC_PACKAGES or any(
        hasattr(kind, name) for name in _CORE_SCHEMA_NAMES
    )


def walk_types(annotation: Any, visited: set[type] | None = None) -> Iterator[Any]:
    """All parts of a type and of the fields of its classes, and the defaults of the fields of dataclasses."""
    visited = set() if visited is None else visited
    for part in walk_annotation(annotation):
        yield part
        if not isinstance(part, type) or part in visited:
            continue
        kind: type[Any] = part
        visited.add(kind)
        if dataclasses.is_dataclass(kind):
            yield from (field.default for field in dataclasses.fields(kind))
        if is_typed_dict(kind) or any(hasattr(kind, name) for name in _FIELD_NAMES):
            for hint in _field_types(kind):
                yield from walk_types(hint, visited)


def _field_types(kind: type) -> tuple[Any, ...]:
    try:
        return tuple(get_type_hints(kind, include_extras=True).values())
    except (AttributeError, NameError, SyntaxError, TypeError):
        return ()  # the library that handles the type reports it


def _find_msgspec_problem(annotation: Any) -> str:
    """Why msgspec does not support a type; empty if it does."""
    try:
        info = msgspec.inspect.type_info(annotation)
    except (AttributeError, NameError, RecursionError, TypeError) as error:
        return str(error).partition(" - type ")[0].rstrip(".")
    return _find_problem_inside(info, set())


def _find_problem_inside(info: Any, visited: set[int]) -> str:
    """What JSON cannot represent inside a type: a class, or the default of a field. Empty if there is nothing."""
    if id(info) in visited:
        return ""
    visited.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return f"{info.cls.__name__} is not a JSON type"
    for field in getattr(info, "fields", ()):
        if field.default is msgspec.NODEFAULT or field.default is msgspec.UNSET:
            continue
        try:  # the JSON Schema shows the default
            msgspec.to_builtins(field.default, str_keys=True)
        except TypeError:
            return f"the default of the field {field.name!r} of {info.cls.__name__} is not a JSON value"
    return next((found for part in child_types(info) if (found := _find_problem_inside(part, visited))), "")


def child_types(info: Any) -> Iterator[Any]:
    """The types that a type consists of: the items of a list, the members of a union, the fields of an object."""
    for name in ("type", "item_type", "key_type", "value_type"):
        if (part := getattr(info, name, None)) is not None:
            yield part
    yield from getattr(info, "types", ())
    yield from getattr(info, "item_types", ())
    yield from (field.type for field in getattr(info, "fields", ()))


def _is_pydantic_installed() -> bool:
    if "pydantic" in sys.modules:
        return True
    from importlib.util import find_spec

    return find_spec("pydantic") is not None


def _check_pydantic(annotation: Any) -> None:
    from holdfast.toolkit import pydantic_types

    pydantic_types.check_support(annotation)
