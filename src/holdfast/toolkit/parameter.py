"""One parameter of a handler that callers fill in: its name, type and default."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.toolkit.patterns import check_patterns, child_types

Issue: TypeAlias = JsonObject
"""`{field, code, message}`: which argument is wrong, and how."""

PARAM_HEADER_KEY: Final = "x-mcp-header"
_PYDANTIC_PACKAGES = ("pydantic", "annotated_types")


@dataclass(frozen=True, slots=True)
class Header:
    """Marks an argument that HTTP clients repeat in the header `Mcp-Param-<name>`: `Annotated[str, Header("Region")]`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """The name, type and default of an argument.

    pydantic decodes it if its type uses pydantic, or if msgspec does not support the type; otherwise msgspec decodes it.
    """

    name: str
    annotation: Any
    default: object = UNSET
    uses_pydantic: bool = False

    @property
    def required(self) -> bool:
        return self.default is UNSET

    def struct_field(self) -> tuple[str, Any] | tuple[str, Any, Any]:
        """The field for this argument in the struct that arguments are decoded into.

        The default of an optional field is UNSET, because the handler applies the real default.
        """
        kind = msgspec.Raw if self.uses_pydantic else self.annotation
        return (self.name, kind) if self.required else (self.name, kind | UnsetType, UNSET)

    def schema_default(self) -> JsonObject:
        """The `default` to add to the schema; empty if there is no default or if it is not JSON."""
        if self.required:
            return {}
        try:
            return {"default": msgspec.to_builtins(self.default)}
        except (TypeError, ValueError):
            return {}


def read_parameter(tool: str, name: str, annotation: Any, default: object) -> Parameter:
    """Read one parameter of a handler; raises BAD_TOOL when its type cannot be decoded from JSON."""
    kind = _expand_shorthand(annotation)
    if _uses_pydantic(kind):
        return Parameter(name=name, annotation=kind, default=default, uses_pydantic=True)
    try:
        info = msgspec.inspect.type_info(kind)
    except TypeError as error:
        problem = str(error)
    else:
        check_patterns(tool, name, info)
        custom = _find_custom_type(info)
        if not custom:
            return Parameter(name=name, annotation=kind, default=default)
        problem = f"{custom} is not a JSON type"
    if _pydantic_supports(kind):
        return Parameter(name=name, annotation=kind, default=default, uses_pydantic=True)
    raise HoldfastError(
        codes.BAD_TOOL,
        f"The argument {name!r} of {tool!r} cannot be read from JSON: {problem}. Use another type.",
    )


def _expand_shorthand(annotation: Any) -> Any:
    """Replace the shorthands in an annotation with `Meta`: a string is a description, `Header` sets `x-mcp-header`."""
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(map(_expand_shorthand, get_args(annotation)))]  # noqa: UP007
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, *metadata = get_args(annotation)
    for item in metadata:
        match item:
            case str():
                kind = Annotated[kind, Meta(description=item)]
            case Header():
                kind = Annotated[kind, Meta(extra_json_schema={PARAM_HEADER_KEY: item.name})]
            case _:
                kind = Annotated[kind, item]
    return kind


def _uses_pydantic(annotation: Any) -> bool:
    """Whether any part of the annotation is a type or a constraint of pydantic."""
    for part in walk_annotation(annotation):
        kind = part if isinstance(part, type) else type(part)
        if kind.__module__.partition(".")[0] in _PYDANTIC_PACKAGES or hasattr(
            kind, "__pydantic_core_schema__"
        ):
            return True
    return False


def walk_annotation(annotation: Any) -> Iterator[Any]:
    """The annotation and all its parts."""
    yield annotation
    for part in get_args(annotation):
        yield from walk_annotation(part)


def _find_custom_type(info: Any) -> str:
    """The name of a class inside this type that JSON cannot represent; empty if there is none."""
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls.__name__
    return next((name for part in child_types(info) if (name := _find_custom_type(part))), "")


def _pydantic_supports(annotation: Any) -> bool:
    """Whether pydantic is installed and supports the type."""
    if "pydantic" not in sys.modules:
        from importlib.util import find_spec

        if find_spec("pydantic") is None:
            return False
    from holdfast.toolkit.pydantic_types import find_adapter

    return find_adapter(annotation) is not None
