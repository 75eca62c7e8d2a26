"""Adds to a JSON Schema of msgspec what msgspec leaves out: descriptions and order of fields, formats, numbers for decimals."""

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, NotRequired, Required, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import typing_extensions
from msgspec import inspect

from holdfast.model.json import Json, JsonObject

_FIELD_TYPES = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
_WRAPPERS = (Required, NotRequired, typing_extensions.Required, typing_extensions.NotRequired)


def add_details(schema: Json, definitions: JsonObject, annotation: Any, *, is_input: bool) -> None:
    """Add the details to the schema that msgspec made of a type, and to the definitions that it refers to."""
    _Walk(definitions, is_input=is_input).add(schema, msgspec.inspect.type_info(annotation))


def read_description(annotation: Any) -> str:
    """The description in `Annotated[int, "How many."]` or `Annotated[int, Doc("How many.")]`; empty if there is none."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        texts = [
            item if isinstance(item, str) else getattr(item, "documentation", None) for item in parts[1:]
        ]
        return next((text for text in reversed(texts) if isinstance(text, str)), read_description(parts[0]))
    if origin in (Union, UnionType, *_WRAPPERS):
        return next((text for part in parts if (text := read_description(part))), "")
    return ""


def read_field_types(kind: Any) -> dict[str, Any]:
    """The types of the fields of a class, in the order in which they are written; empty if a name in them is not found."""
    try:
        return get_type_hints(get_origin(kind) or kind, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError):
        return {}  # the library that handles the type reports it


def add_descriptions(properties: Json, kind: Any, alias_of: Callable[[str], str] = str) -> None:
    """Add the descriptions in the annotations of a class to the schemas of its fields. `Field(description=…)` has precedence."""
    if not isinstance(properties, dict):
        return
    for name, hint in read_field_types(kind).items():
        part = properties.get(alias_of(name), properties.get(name))
        if isinstance(part, dict) and (text := read_description(hint)):
            part.setdefault("description", text)


class _Walk:
    """Walks through a type and its schema at the same time."""

    def __init__(self, definitions: JsonObject, *, is_input: bool) -> None:
        self._definitions = definitions
        self._is_input = is_input
        self._done: set[str] = set()

    def add(self, schema: Json, info: Any) -> None:
        while isinstance(info, inspect.Metadata):
            info = info.type
        if not isinstance(schema, dict):
            return
        reference = schema.get("$ref")
        if isinstance(reference, str):
            name = reference.rpartition("/")[2]
            if name not in self._done:
                self._done.add(name)
                self._add_here(self._definitions.get(name), info)
            return
        self._add_here(schema, info)

    def _add_here(self, schema: Json, info: Any) -> None:
        if not isinstance(schema, dict):
            return
        match info:
            # Results get no format, because a client that checks formats refuses a time without an offset.
            case inspect.DateTimeType(tz=None) if self._is_input:
                schema.setdefault("format", "date-time")
            case inspect.TimeType(tz=None) if self._is_input:
                schema.setdefault("format", "time")
            case inspect.DecimalType() if self._is_input and schema.get("format") == "decimal":
                text: JsonObject = {"type": schema.pop("type"), "format": schema.pop("format")}
                schema["anyOf"] = [{"type": "number"}, text]
            case inspect.CollectionType():
                self.add(schema.get("items"), info.item_type)
            case inspect.TupleType():
                self._add_each(schema.get("prefixItems"), info.item_types)
            case inspect.DictType():
                self.add(schema.get("additionalProperties"), info.value_type)
            case inspect.UnionType():
                self._add_each([*_alternatives(schema)], _in_order_of_schema(info))
            case _ if isinstance(info, _FIELD_TYPES):
                self._add_fields(schema, info)
            case _:
                pass

    def _add_each(self, schemas: Json, infos: tuple[Any, ...]) -> None:
        if isinstance(schemas, list) and len(schemas) == len(infos):
            for schema, info in zip(schemas, infos, strict=True):
                self.add(schema, info)

    def _add_fields(self, schema: JsonObject, info: Any) -> None:
        names = [field.encode_name for field in info.fields]
        properties = schema.get("properties")
        if isinstance(
            items := schema.get("prefixItems"), list
        ):  # a named tuple, or a struct that is sent as a list
            properties = dict(zip(names, items[-len(names) :], strict=True)) if names else {}
        if not isinstance(properties, dict):
            return
        for field in info.fields:
            self.add(properties.get(field.encode_name), field.type)
        aliases = {field.name: field.encode_name for field in info.fields}
        add_descriptions(properties, info.cls, lambda name: aliases.get(name, name))
        if isinstance(info, inspect.TypedDictType):  # msgspec sorts the fields
            order = [name for name in read_field_types(info.cls) if name in properties]
            schema["properties"] = {name: properties[name] for name in order} | properties
            required = schema.get("required")
            if isinstance(required, list):
                schema["required"] = sorted(
                    required, key=lambda name: order.index(str(name)) if name in order else -1
                )


def _alternatives(schema: JsonObject) -> Iterator[Json]:
    """The members of a union. msgspec puts several structs into a union of their own."""
    members = schema.get("anyOf")
    for member in cast("list[Json]", members) if isinstance(members, list) else []:
        if isinstance(member, dict) and "discriminator" in member:
            yield from _alternatives(member)
        else:
            yield member


def _in_order_of_schema(union: inspect.UnionType) -> tuple[Any, ...]:
    """The members of a union in the order in which msgspec lists them: structs after other types, null last."""

    def place(member: Any) -> int:
        while isinstance(member, inspect.Metadata):
            member = member.type
        if isinstance(member, inspect.NoneType):
            return 2
        return int(isinstance(member, inspect.StructType) and not member.array_like)

    return tuple(sorted(union.types, key=place))
