"""One parameter of a handler that callers fill in: its name, type and default."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.class_fields import check_field_annotations, check_field_values, is_known_metadata
from holdfast.toolkit.parameter_default import REQUIRED, BadDefaultError, Default, read_default
from holdfast.toolkit.patterns import check_pattern, check_patterns
from holdfast.toolkit.type_support import (
    UnsupportedTypeError,
    find_library,
    is_simple,
    rebuild,
    replace_object,
    walk_annotation,
    walk_types,
)

Issue: TypeAlias = JsonObject
"""`{field, code, message}`: which argument is wrong, and how."""

PARAM_HEADER_KEY: Final = "x-mcp-header"
_GIVEN_ADVICE = "For a value that callers do not send, use Annotated[…, Given(function)]"


class Header(msgspec.Struct, frozen=True):
    """Marks an argument that HTTP clients repeat in the header `Mcp-Param-<name>`: `Annotated[str, Header("Region")]`."""

    name: str


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """The name, type and default of an argument.

    pydantic decodes it if its type uses pydantic, or if msgspec does not support the type; otherwise msgspec decodes it.
    """

    name: str
    annotation: Any
    default: Default = Default()
    uses_pydantic: bool = False

    @property
    def required(self) -> bool:
        return self.default.value is REQUIRED

    @property
    def default_maker(self) -> Callable[[], Any] | None:
        """The function that makes the value for a call that does not send the argument; None if the handler's own default applies."""
        return self.default.make

    def struct_field(self) -> tuple[str, Any] | tuple[str, Any, Any]:
        """The field for this argument in the struct that arguments are decoded into.

        The default of an optional field is UNSET, because the handler applies the real default.
        """
        kind = msgspec.Raw if self.uses_pydantic else self.annotation
        return (self.name, kind) if self.required else (self.name, Union[kind, UnsetType], UNSET)  # noqa: UP007

    def schema_default(self) -> JsonObject:
        """The `default` to add to the schema; empty if there is none to show."""
        value = self.default.value
        return {} if value is REQUIRED or value is UNSET else {"default": self._to_json(value)}

    def _to_json(self, value: Any) -> Json:
        if not self.uses_pydantic:
            return msgspec.to_builtins(value)
        from holdfast.toolkit import pydantic_types

        return pydantic_types.dump_default(self.annotation, value)

    def check_default(self) -> None:
        """Raise `BadDefaultError` unless the default is a value of the argument's type."""
        value = self.default.value
        if value is REQUIRED or value is UNSET or value is None or type(value) is self.annotation:
            return
        try:
            shown = self._to_json(value)
            if not self.uses_pydantic:
                msgspec.convert(shown, self.annotation)
        except msgspec.ValidationError as error:
            if ", got `" not in str(error):
                return  # a value outside of the limits that hold for callers, such as -1 for "all"
            raise BadDefaultError(f"is not of its type: {error}") from None
        except UnsupportedTypeError as error:
            raise BadDefaultError(f"{error}. {_GIVEN_ADVICE}") from None
        except (TypeError, ValueError):
            raise BadDefaultError(
                f"is a {type(value).__name__}, which is not a JSON value. {_GIVEN_ADVICE}"
            ) from None


def read_parameter(tool: str, name: str, annotation: Any, default: object = REQUIRED) -> Parameter:
    """Read one parameter of a handler; raises BAD_TOOL when its type or its default is not understood."""
    try:
        kind, parsed_default = read_default(annotation, default)
        parameter = _read_type(tool, name, kind, parsed_default)
        parameter.check_default()
    except BadDefaultError as error:
        raise HoldfastError(
            codes.BAD_TOOL, f"The default of the argument {name!r} of {tool!r} {error}."
        ) from None
    except UnsupportedTypeError as error:
        raise HoldfastError(
            codes.BAD_TOOL,
            f"The argument {name!r} of {tool!r} cannot be read from JSON: {error}.",
        ) from None
    return parameter


def parameter_with_hidden_default(name: str, annotation: Any) -> Parameter:
    """An optional parameter whose default is not in the schema, because the dispatcher determines it."""
    return Parameter(name=name, annotation=_expand_shorthand(annotation), default=Default(UNSET))


def _read_type(tool: str, name: str, annotation: Any, default: Default) -> Parameter:
    if is_simple(annotation):
        return Parameter(name=name, annotation=annotation, default=default)
    _check_markers(annotation)
    try:
        check_field_annotations(annotation)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"{error}. {_GIVEN_ADVICE}") from None
    kind = _expand_shorthand(replace_object(annotation))
    try:
        library = find_library(kind)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"{error}. Use another type. {_GIVEN_ADVICE}") from None
    if library == "msgspec":
        check_field_values(kind, uses_pydantic=False)
        check_patterns(tool, name, msgspec.inspect.type_info(kind))
        return Parameter(name=name, annotation=kind, default=default)
    from holdfast.toolkit import pydantic_types

    kind = _map_metadata(kind, _to_pydantic)
    if any(isinstance(part, Meta) for part in walk_types(kind)):
        raise UnsupportedTypeError("a field has a Meta, which pydantic does not read. Use Field there")
    check_field_values(kind, uses_pydantic=True)
    for pattern, max_length in pydantic_types.patterns(kind):
        check_pattern(tool, name, pattern, max_length)
    return Parameter(name=name, annotation=kind, default=default, uses_pydantic=True)


def _check_markers(annotation: Any) -> None:
    """Raise `UnsupportedTypeError` for a `Context` of another toolkit, `Final`, or an unknown object in `Annotated[…]`."""
    for part in walk_annotation(annotation):
        if _is_sdk_context(part):
            raise UnsupportedTypeError(
                "Context is a type of another toolkit. To get the call, use `call: Call` from holdfast.toolkit"
            )
        if Final in (part, get_origin(part)):
            raise UnsupportedTypeError("Final is for variables. Leave it out")
        if get_origin(part) is not Annotated:
            continue
        for item in get_args(part)[1:]:
            if not isinstance(item, Header) and not is_known_metadata(item):
                raise UnsupportedTypeError(
                    f"the toolkit does not know {type(item).__name__} in its annotation. {_GIVEN_ADVICE}"
                )


def _expand_shorthand(annotation: Any) -> Any:
    """Replace the shorthands in an annotation with `Meta`: a string is a description, `Header` sets `x-mcp-header`."""
    return _map_metadata(annotation, _to_meta)


def _to_meta(item: Any) -> Any:
    match item:
        case str():
            return Meta(description=item)
        case Header():
            return Meta(extra_json_schema={PARAM_HEADER_KEY: item.name})
        case _ if isinstance(text := getattr(item, "documentation", None), str):  # Doc("…") of PEP 727
            return Meta(description=text)
        case _:
            return item


def _to_pydantic(item: Any) -> Any:
    """Convert a `Meta` to a pydantic `Field`: pydantic does not read a `Meta`."""
    if not isinstance(item, Meta):
        return item
    from pydantic import Field

    given: dict[str, Any] = {
        name: value for name in _META_FIELDS if (value := getattr(item, name)) is not None
    }
    if "extra_json_schema" in given:
        given["json_schema_extra"] = given.pop("extra_json_schema")
    return Field(**given)


_META_FIELDS = (
    *("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length"),
    *("title", "description", "examples", "extra_json_schema"),
)


def _map_metadata(annotation: Any, change: Callable[[Any], Any]) -> Any:
    """The annotation with every item of every `Annotated[…]` in it changed."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kind = _map_metadata(parts[0], change)
        for item in parts[1:]:
            kind = Annotated[kind, change(item)]
        return kind
    if not any(get_origin(part) is Annotated for part in walk_annotation(annotation)):
        return annotation
    return rebuild(annotation, tuple(_map_metadata(part, change) for part in parts))


def _is_sdk_context(part: Any) -> bool:
    """Whether a type is the `Context` of FastMCP or of the MCP SDK, which their tools get from their servers."""
    return (
        isinstance(part, type)
        and part.__name__ == "Context"
        and part.__module__.partition(".")[0] in ("fastmcp", "mcp")
    )
