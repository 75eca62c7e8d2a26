"""What a handler returns: its JSON, checked against the declared return type, and the JSON Schema of that type."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
)

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.argument_schema import add_enum_types, drop_repeated_titles, order_choices
from holdfast.toolkit.content import CONTENT_TYPES, Reply
from holdfast.toolkit.dataclass_defaults import may_have_defaults, set_defaults
from holdfast.toolkit.errors import ResultMismatchError
from holdfast.toolkit.json_values import encode_json, is_finite
from holdfast.toolkit.paging import Page
from holdfast.toolkit.schema_details import add_details
from holdfast.toolkit.type_support import (
    UnsupportedTypeError,
    find_library,
    is_simple,
    is_typed_dict,
    rebuild,
    replace_object,
    unwrap_type,
    walk_annotation,
)
from holdfast.wire.strict_json import DECODE_ERRORS, describe_decode_error

EnvelopeKind: TypeAlias = Literal["content", "meta"]
"""Where the envelope of a result is: in its content, with the data, or in its `_meta`."""

RESERVED_MEMBERS = frozenset({"ok", "_meta"})
FAILURE_MEMBERS = frozenset({"code", "error", "hint", "retryable", "http", "next_actions", "details"})
"""The members that only failures have. `RESERVED_MEMBERS` are in every envelope in the content."""
_NO_DATA = (NoneType, None, NoReturn)
_UNCHECKED = (Any, Reply)
_EXACT_TYPES = (str, int, bool)  # a value of exactly such a type needs no check
_MAX_INLINED_PARTS = 5000  # a longer schema keeps its references


class ReturnType:
    """The declared return type of a handler. Encodes what the handler returns, and makes the output schema."""

    def __init__(self, annotation: Any, *, uses_pydantic: bool = False) -> None:
        self.annotation = annotation
        """`Any` if the handler declares no type of its data."""
        self.uses_pydantic = uses_pydantic
        self.may_have_content = annotation is Any
        """Whether a list that the handler returns may have content blocks in it."""
        self._exact_type = annotation if annotation in _EXACT_TYPES else None

    @property
    def is_declared(self) -> bool:
        """Whether the handler declares the type of its data."""
        return self.annotation is not Any and not self.returns_nothing

    @property
    def returns_nothing(self) -> bool:
        """Whether the declared type is `None` or `NoReturn`."""
        return self.annotation in _NO_DATA

    def encode(self, returned: object) -> bytes:
        """The JSON of a returned value; raises `ResultMismatchError` if it does not match the declared type."""
        if type(returned) is self._exact_type:
            return encode_json(returned)
        if self.uses_pydantic:
            from holdfast.toolkit import pydantic_types

            returned = pydantic_types.dump(self.annotation, returned)
        elif self._may_have_defaults:
            set_defaults(returned)
        body = encode_json(returned)
        if b"null" in body and not is_finite(returned):
            raise ResultMismatchError("The result has a NaN or an infinity, which JSON does not have.")
        if self._limit_check is not None:
            self._limit_check(body)
        if self._decoder is not None:
            try:
                self._decoder(body)
            except DECODE_ERRORS as error:
                raise ResultMismatchError(
                    f"The result does not match the declared type: {describe_decode_error(error)}."
                ) from None
        return body

    @cached_property
    def _decoder(self) -> Callable[[bytes], Any] | None:
        """A function that decodes the JSON of a value, and so checks it against the type; None if there is nothing to check."""
        if self.uses_pydantic or self.annotation is Any or self.annotation in _NO_DATA:
            return None
        members = union_members(self.annotation)
        try:
            return msgspec.json.Decoder(self.annotation).decode
        except TypeError:  # a union of types that msgspec cannot tell apart
            return _decode_as_one_of([msgspec.json.Decoder(member).decode for member in members])

    @cached_property
    def _may_have_defaults(self) -> bool:
        return may_have_defaults(self.annotation)

    @cached_property
    def _limit_check(self) -> Callable[[bytes], None] | None:
        """A function that raises `ResultMismatchError` if the JSON of a pydantic type is outside of its limits; None if there is no check."""
        if not self.uses_pydantic:
            return None
        from holdfast.toolkit import pydantic_types

        return pydantic_types.make_limit_check(self.annotation)

    @cached_property
    def has_fields(self) -> bool:
        """Whether the members of a result are declared, so that they cannot be moved."""
        return any(member_names(member) is not None for member in union_members(self.annotation))

    @cached_property
    def wraps(self) -> bool:
        """Whether the data is sent as `{"result": …}` if the envelope is in `_meta`, because the data is not always an object."""
        return self.is_declared and not _is_object(*self._schema)

    def output_schema(self, envelope: EnvelopeKind) -> JsonObject | None:
        """The JSON Schema of the structured content; None if it is not known."""
        if envelope == "content":
            return self._schema_with_envelope
        if not self.is_declared:
            return None
        schema, definitions = self._schema
        if self.wraps:
            # With `x-fastmcp-wrap-result`, FastMCP's clients return the value itself as the data of a result.
            return _with_definitions(
                {
                    "type": "object",
                    "properties": {"result": schema},
                    "required": ["result"],
                    "x-fastmcp-wrap-result": True,
                },
                definitions,
            )
        inlined = _resolve(schema, definitions)  # MCP requires `"type": "object"` at the top
        return _with_definitions(inlined, _used_definitions(inlined, definitions))

    @cached_property
    def _schema_with_envelope(self) -> JsonObject | None:
        """The schema of the data with `ok` and `_meta`. What is true only for successes is under `if` and `then`."""
        if self.annotation is Any:
            return None
        schema: JsonObject = {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}, "_meta": {"type": "object"}},
            "required": ["ok", "_meta"],
        }
        if self.returns_nothing:
            return schema
        data, definitions = self._schema
        then = _schema_as_object(data, definitions)
        declared = then.pop("properties", None)
        if isinstance(declared, dict):
            # In a failure, `FAILURE_MEMBERS` mean something else. All other members are declared at the top, because clients
            # that make a type of the schema read only the top.
            clashing = {name: part for name, part in declared.items() if name in FAILURE_MEMBERS}
            schema["properties"] = {
                **{name: part for name, part in declared.items() if name not in FAILURE_MEMBERS},
                "ok": {"type": "boolean"},
                "_meta": {"type": "object"},
            }
            if clashing:
                then["properties"] = clashing
        if then:
            schema["if"] = {"properties": {"ok": {"const": True}}}
            schema["then"] = then
        return _with_definitions(schema, _used_definitions(schema, definitions))

    @cached_property
    def _schema(self) -> tuple[JsonObject, JsonObject]:
        """The JSON Schema of the data without its `$defs`, and the `$defs`."""
        if self.uses_pydantic:
            from holdfast.toolkit import pydantic_types

            schema, definitions = pydantic_types.output_schema(self.annotation)
        else:
            schema, definitions = _msgspec_schema(self.annotation)
        drop_repeated_titles(definitions)
        for part in (schema, definitions):
            add_enum_types(part)
            order_choices(part, [self.annotation])
        return inline_definitions(schema, definitions)


UNDECLARED = ReturnType(Any)


def read_return_type(tool: str, annotation: Any, envelope: EnvelopeKind) -> ReturnType:
    """Read the return type of a handler; raises BAD_TOOL when its values cannot be sent unchanged."""
    annotation = replace_object(annotation)
    if get_origin(unwrap_type(annotation)) is Reply:
        (annotation,) = get_args(unwrap_type(annotation))
    kind = unwrap_type(annotation)
    _check_foreign_types(tool, annotation)
    if kind in _UNCHECKED or any(map(_has_content, union_members(kind))):
        return UNDECLARED
    if envelope == "content":
        _check_reserved(tool, kind)
    if is_simple(annotation) or kind in _NO_DATA:
        return ReturnType(kind)
    try:
        annotation = _replace_pages(annotation)
        return ReturnType(annotation, uses_pydantic=_uses_pydantic(annotation))
    except UnsupportedTypeError as error:
        raise HoldfastError(
            codes.BAD_TOOL,
            f"The return type of {tool!r} cannot be sent as JSON: {error}. Return a dataclass, a dict, a list, text, "
            "or a number. For another type, return for example str(value).",
        ) from None


def _check_foreign_types(tool: str, annotation: Any) -> None:
    """Raise BAD_TOOL for content types of another toolkit. They would be sent as data."""
    for part in walk_annotation(annotation):
        if isinstance(part, type) and part.__module__.partition(".")[0] in ("fastmcp", "mcp", "mcp_types"):
            raise HoldfastError(
                codes.BAD_TOOL,
                f"The return type of {tool!r} has {part.__name__}, a type of another toolkit. Use Text, Image, Audio, ResourceLink, "
                "Resource or Reply from holdfast.toolkit, or return plain data.",
            )


def union_members(annotation: Any) -> Iterator[Any]:
    """The members of a union, or the type itself."""
    kind = unwrap_type(annotation)
    if get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from union_members(member)
    else:
        yield kind


def member_names(kind: Any) -> frozenset[str] | None:
    """The names of the members that a type declares; None if it declares none."""
    origin: Any = get_origin(kind) or kind
    if not isinstance(origin, type):
        return None
    kind = cast("type[Any]", origin)
    if is_typed_dict(kind):
        return frozenset(kind.__annotations__)
    if (names := getattr(kind, "__struct_encode_fields__", None)) is not None:
        return frozenset(cast("tuple[str, ...]", names))
    if dataclasses.is_dataclass(kind):
        return frozenset(field.name for field in dataclasses.fields(kind))
    if (fields := getattr(kind, "__pydantic_fields__", None)) is not None:
        computed = getattr(kind, "__pydantic_computed_fields__", {})
        aliases = (getattr(field, "serialization_alias", None) for field in (*fields.values(),))
        return frozenset((*fields, *computed, *(alias for alias in aliases if alias)))
    if (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        return frozenset(attribute.name for attribute in attributes)
    return None


def _check_reserved(tool: str, annotation: Any) -> None:
    for member in union_members(annotation):
        taken = RESERVED_MEMBERS & (member_names(member) or frozenset[str]())
        if taken:
            raise HoldfastError(
                codes.BAD_TOOL,
                f"The return type of {tool!r}, {getattr(member, '__name__', member)}, has a field {min(taken)!r}, "
                'which every result has already. Rename the field, or set envelope="meta" in the Toolbox: then the '
                "data is sent as it is.",
            )


def _has_content(annotation: Any) -> bool:
    """Whether a type has content types in it, or is a list of anything, so that its values may be or contain content blocks."""
    kind = get_origin(annotation) or annotation
    if isinstance(kind, type) and issubclass(kind, Iterable) and not issubclass(kind, Mapping | str | bytes):
        items = get_args(annotation)
        if Any in items or (not items and kind in (list, tuple)):
            return True
    return any(
        part in CONTENT_TYPES or part is Reply or get_origin(part) is Reply
        for part in walk_annotation(annotation)
    )


def _uses_pydantic(annotation: Any) -> bool:
    """Whether pydantic handles a type; raises `UnsupportedTypeError` if no library supports it."""
    try:
        return find_library(annotation) == "pydantic"
    except UnsupportedTypeError:
        members = tuple(union_members(annotation))
        if len(members) == 1:
            raise
    if all(find_library(member) == "msgspec" for member in members):
        return False
    raise UnsupportedTypeError("it mixes types of msgspec and pydantic")


def _replace_pages(annotation: Any) -> Any:
    """The annotation, with a type for pydantic in place of each page of items that pydantic handles."""
    parts = get_args(annotation)
    if get_origin(annotation) is Page and _uses_pydantic(parts[0]):
        from holdfast.toolkit import pydantic_types

        return pydantic_types.page_type(parts[0])
    if get_origin(annotation) not in (Annotated, Union, UnionType):
        return annotation
    return rebuild(annotation, tuple(map(_replace_pages, parts)))


def _decode_as_one_of(decoders: list[Callable[[bytes], Any]]) -> Callable[[bytes], Any]:
    def decode(body: bytes) -> Any:
        for attempt in decoders[:-1]:
            try:
                return attempt(body)
            except DECODE_ERRORS:
                pass
        return decoders[-1](body)

    return decode


def _msgspec_schema(annotation: Any) -> tuple[JsonObject, JsonObject]:
    """The JSON Schema that msgspec makes of a type, without its `$defs`, and the `$defs`."""
    members = tuple(union_members(annotation))
    schema: JsonObject
    try:
        schemas, components = msgspec.json.schema_components([annotation], ref_template="#/$defs/{name}")
        schema, members = schemas[0], (annotation,)
    except TypeError:  # a union of types that msgspec cannot tell apart
        schemas, components = msgspec.json.schema_components(members, ref_template="#/$defs/{name}")
        schema = {"anyOf": [*schemas]}
    definitions = cast("JsonObject", dict(components))
    for part, member in zip(schemas, members, strict=True):
        add_details(part, definitions, member, is_input=False)
    return schema, definitions


def inline_definitions(schema: JsonObject, definitions: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Replace references with what they refer to, and return the definitions that are still needed.

    Many clients do not follow references. A type that contains itself keeps its references. All types keep them if the
    schema would otherwise become long.
    """
    recursive = {name for name in definitions if name in _used_definitions(definitions[name], definitions)}
    inlined = {name: part for name, part in definitions.items() if name not in recursive}
    size = 0

    def replace(part: Json) -> Json:
        nonlocal size
        size += 1
        if size > _MAX_INLINED_PARTS:
            raise OverflowError
        if isinstance(part, list):
            return [replace(item) for item in part]
        if not isinstance(part, dict):
            return part
        reference = part.get("$ref")
        name = reference.rpartition("/")[2] if isinstance(reference, str) else ""
        if name in inlined:
            target = replace(inlined[name])
            assert isinstance(target, dict)
            return {**target, **{key: value for key, value in part.items() if key != "$ref"}}
        return {key: replace(value) for key, value in part.items()}

    try:
        top = replace(schema)
        kept = {name: replace(definitions[name]) for name in recursive}
    except OverflowError:
        return schema, definitions
    assert isinstance(top, dict)
    return top, kept


def _is_object(schema: JsonObject, definitions: JsonObject) -> bool:
    target = _resolve(schema, definitions)
    return target.get("type") == "object"


def _resolve(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    """The schema, or the definition that it refers to."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found = definitions.get(reference.rpartition("/")[2])
        if isinstance(found, dict):
            return found
    return schema


def _with_definitions(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    return {**schema, "$defs": definitions} if definitions else schema


def _schema_as_object(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    """The schema of what `envelope.data_as_object` makes of data with this schema."""
    target = _resolve(schema, definitions)
    alternatives = target.get("anyOf")
    if isinstance(alternatives, list):
        return {"anyOf": [_schema_as_object(cast("JsonObject", part), definitions) for part in alternatives]}
    match target.get("type"):
        case "object":
            # The envelope adds `ok` and `_meta`, and a dict that has such a member is put under `result`.
            open_object = {name: part for name, part in target.items() if name != "additionalProperties"}
            return {name: part for name, part in open_object.items() if name not in ("type", "title")}
        case "array":
            return {"properties": {"items": schema}, "required": ["items"]}
        case "null":
            return {}
        case _:
            return {"properties": {"result": schema}, "required": ["result"]} if target else {}


def _used_definitions(schema: Json, definitions: JsonObject) -> JsonObject:
    """The definitions that a schema needs, directly or through others."""
    used: JsonObject = {}
    waiting: list[Json] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            reference = part.get("$ref")
            if isinstance(reference, str):
                name = reference.rpartition("/")[2]
                if name in definitions and name not in used:
                    used[name] = definitions[name]
                    waiting.append(definitions[name])
            waiting += part.values()
    return used
