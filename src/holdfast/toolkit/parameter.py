"""One argument of a tool, as its handler's signature declares it."""

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
from holdfast.toolkit.patterns import check_patterns

Issue: TypeAlias = JsonObject
"""`{field, code, message}`: which argument is wrong, in which way, in words."""

MIRROR_KEY: Final = "x-mcp-header"
_PYDANTIC = ("pydantic", "annotated_types")


@dataclass(frozen=True, slots=True)
class Header:
    """Marks an argument that HTTP clients repeat in the header `Mcp-Param-<name>`: `Annotated[str, Header("Region")]`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Name, type and default; `foreign` ones are read by pydantic, because the author speaks it."""

    name: str
    kind: Any
    default: object = UNSET
    foreign: bool = False

    @property
    def required(self) -> bool:
        """Whether a call must have it."""
        return self.default is UNSET

    def field(self) -> tuple[str, Any] | tuple[str, Any, Any]:
        """The field of the struct that a call's arguments are read into; a default stays the handler's own."""
        kind = msgspec.Raw if self.foreign else self.kind
        return (self.name, kind) if self.required else (self.name, kind | UnsetType, UNSET)

    def shown_default(self) -> JsonObject:
        """The default as the schema tells it, if JSON can say it."""
        if self.required:
            return {}
        try:
            return {"default": msgspec.to_builtins(self.default)}
        except (TypeError, ValueError):
            return {}


def parameter(tool: str, name: str, annotation: Any, default: object) -> Parameter:
    """Read one parameter; a type that cannot be read from JSON fails here, before anybody calls."""
    kind = _spelled(annotation)
    if _is_foreign(kind):
        return Parameter(name=name, kind=kind, default=default, foreign=True)
    try:
        info = msgspec.inspect.type_info(kind)
    except TypeError as error:
        problem = str(error)
    else:
        check_patterns(tool, name, info)
        custom = _custom(info)
        if not custom:
            return Parameter(name=name, kind=kind, default=default)
        problem = f"{custom} has no meaning in JSON"
    if _pydantic_reads(kind):
        return Parameter(name=name, kind=kind, default=default, foreign=True)
    raise HoldfastError(
        codes.BAD_TOOL,
        f"The argument {name!r} of {tool!r} cannot be read from JSON: {problem}. Use another type.",
    )


def _spelled(annotation: Any) -> Any:
    """The annotation with our short forms written out: a string is a description, `Header` a mark in the schema."""
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(map(_spelled, get_args(annotation)))]  # noqa: UP007
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, *marks = get_args(annotation)
    for mark in marks:
        match mark:
            case str():
                kind = Annotated[kind, Meta(description=mark)]
            case Header():
                kind = Annotated[kind, Meta(extra_json_schema={MIRROR_KEY: mark.name})]
            case _:
                kind = Annotated[kind, mark]
    return kind


def _is_foreign(annotation: Any) -> bool:
    """Whether pydantic's words stand anywhere in the annotation."""
    for part in parts(annotation):
        kind = part if isinstance(part, type) else type(part)
        if kind.__module__.partition(".")[0] in _PYDANTIC or hasattr(kind, "__pydantic_core_schema__"):
            return True
    return False


def parts(annotation: Any) -> Iterator[Any]:
    """An annotation, and all that stands in it."""
    yield annotation
    for part in get_args(annotation):
        yield from parts(part)


def _custom(info: Any) -> str:
    """The name of a type that only its author could read, if the type has one in it."""
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls.__name__
    inner = [getattr(info, name, None) for name in ("type", "item_type", "key_type", "value_type")]
    several = [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    return next((name for part in (*inner, *several) if part is not None and (name := _custom(part))), "")


def _pydantic_reads(annotation: Any) -> bool:
    """Whether pydantic is at hand, and knows the type."""
    if "pydantic" not in sys.modules:
        from importlib.util import find_spec

        if find_spec("pydantic") is None:
            return False
    from holdfast.toolkit.foreign import adapter

    return adapter(annotation) is not None
