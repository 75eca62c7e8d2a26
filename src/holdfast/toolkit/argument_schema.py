"""The arguments that a tool takes: their JSON Schema, and how the arguments of a call are decoded and checked."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from functools import cached_property
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw

from holdfast.model.errors import IT_IS_REQUIRED
from holdfast.model.json import Json, JsonObject
from holdfast.model.normal_form import normalize
from holdfast.toolkit.dataclass_defaults import has_defaults, set_defaults
from holdfast.toolkit.json_values import is_finite, write_integers
from holdfast.toolkit.parameter import PARAM_HEADER_KEY, Issue, Parameter
from holdfast.toolkit.schema_details import add_details
from holdfast.toolkit.type_support import is_simple, walk_types
from holdfast.wire.mcp.tools import ParamHeader
from holdfast.wire.strict_json import DECODE_ERRORS, describe_decode_error

_EMPTY_SCHEMA: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}
_STRUCT_NAME = "Arguments"
_STEP = re.compile(r"(?:^|\.)(?P<name>[^.\[\]]+)|\[(?P<index>[^\]]*)\]")
"""One step in the name of a field such as `items[0].color`: a member, or an item of a list."""
_MAX_ISSUES = 32  # more issues of a call are not reported

# The fields of the session context, as `_normalize_name` returns them. A prompt injection may make a model send such
# arguments to any tool. They are ignored and not refused: they cannot change the context.
_CONTEXT_NAMES = frozenset({"sessionid", "trust", "trustlevel", "workspaceid", "userid", "parentsessionid"})


class BadArgumentsError(Exception):
    """The arguments of a call do not match the tool's parameters."""

    def __init__(self, issues: list[Issue]) -> None:
        super().__init__(f"{len(issues)} issues with the arguments")
        self.issues = issues


class ArgumentSchema:
    """The arguments that a tool takes. Makes the JSON Schema that clients see, and decodes the arguments of each call."""

    def __init__(self, parameters: Sequence[Parameter], *, lax: bool = False) -> None:
        """If `lax`, strings are converted to the numbers and booleans that they represent."""
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self._is_lax = lax
        self._default_factories = tuple(
            (parameter.name, parameter.default_maker) for parameter in parameters if parameter.default_maker
        )
        self._pydantic_parameters = tuple(parameter for parameter in parameters if parameter.uses_pydantic)
        self._has_optional = any(not parameter.required for parameter in parameters)
        self._struct = msgspec.defstruct(
            _STRUCT_NAME,
            [parameter.struct_field() for parameter in parameters],
            kw_only=True,
            forbid_unknown_fields=True,
        )

    @cached_property
    def _decode(self) -> Any:
        return msgspec.json.Decoder(self._struct, strict=not self._is_lax).decode

    @cached_property
    def _names_with_dataclass_defaults(self) -> tuple[str, ...]:
        """The arguments whose values contain dataclasses with defaults that msgspec does not set."""
        return tuple(
            parameter.name
            for parameter in self.parameters.values()
            if not parameter.uses_pydantic
            and not is_simple(parameter.annotation)
            and has_defaults(parameter.annotation)
        )

    def parse(self, raw: Raw | bytes) -> dict[str, Any]:
        """Decode the arguments of a call, and return them by name.

        An argument that was not sent is left out, unless its default has to be made for each call.
        Raises `BadArgumentsError` with the first 32 issues.
        """
        issues: list[Issue] = []
        try:
            values = msgspec.structs.asdict(self._decode(raw))
        except DECODE_ERRORS:
            values, issues = self._decode_each(raw)
        if self._has_optional:
            values = {name: value for name, value in values.items() if value is not UNSET}
        if self._is_lax:
            issues += self._find_non_finite(values)
        if self._pydantic_parameters:
            issues += self._validate_pydantic(values)
        if issues:
            raise BadArgumentsError(issues[:_MAX_ISSUES])
        for name in self._names_with_dataclass_defaults:
            set_defaults(values.get(name))
        for name, make in self._default_factories:
            if name not in values:
                values[name] = make()
        return values

    def _decode_each(self, raw: Raw | bytes) -> tuple[dict[str, Any], list[Issue]]:
        """Decode the arguments one by one to find every issue. The struct's decoder stops at the first issue."""
        try:
            given = msgspec.json.decode(raw, type=dict[str, Raw])
        except DECODE_ERRORS:
            raise BadArgumentsError([_issue("", "type", "The arguments must be an object.")]) from None
        issues: list[Issue] = []
        values: dict[str, Any] = {}
        for parameter in self.parameters.values():
            name = parameter.name
            if name not in given:
                if parameter.required:
                    issues.append(_issue(name, "missing", f"{IT_IS_REQUIRED}."))
                continue
            try:
                values[name] = (
                    given[name] if parameter.uses_pydantic else self._decode_one(parameter, given[name])
                )
            except DECODE_ERRORS as error:
                issue = _issue_from_msgspec(name, describe_decode_error(error))
                if issue["code"] == "choice" and (choices := self._choices(str(issue["field"]))):
                    issue |= {"message": f"{issue['message']} Choose one of: {choices}."}
                issues.append(issue)
        known = ", ".join(self.parameters) or "none"
        for name in given:
            if name not in self.parameters and _normalize_name(name) not in _CONTEXT_NAMES:
                issues.append(_issue(name[:80], "unknown", f"Unknown argument. Known: {known}."))
        return values, issues

    def _decode_one(self, parameter: Parameter, raw: Raw) -> Any:
        strict = not self._is_lax
        try:
            return msgspec.json.decode(raw, type=parameter.annotation, strict=strict)
        except msgspec.ValidationError as error:
            # For JSON Schema, 2.0 is an integer. It is read as one only where the type asks for it.
            if "got `float`" not in str(error):
                raise
            whole = write_integers(bytes(raw))
            return msgspec.json.decode(whole, type=parameter.annotation, strict=strict)

    def _choices(self, field: str) -> str:
        """The choices for an argument, or for a part of one such as `items[0].color`, for a message; empty if there are none."""
        schemas: list[JsonObject] = [self.json_schema]
        for step in _STEP.finditer(field):
            schemas = [
                inner for schema in self._alternatives(schemas) for inner in _inner_schemas(schema, step)
            ]
        choices = [choice for schema in self._alternatives(schemas) for choice in _enum_of(schema)]
        return ", ".join(map(str, choices))

    def _alternatives(self, schemas: list[JsonObject]) -> list[JsonObject]:
        """The schemas, with references resolved and unions replaced by their members."""
        definitions = self.json_schema.get("$defs", {})
        assert isinstance(definitions, dict)
        found: list[JsonObject] = []
        for schema in schemas:
            target = definitions.get(str(schema.get("$ref", "")).removeprefix("#/$defs/"), schema)
            if not isinstance(target, dict):
                continue
            members = target.get("anyOf")
            if isinstance(members, list):
                found += self._alternatives([member for member in members if isinstance(member, dict)])
            else:
                found.append(target)
        return found

    def _validate_pydantic(self, values: dict[str, Any]) -> list[Issue]:
        """Replace the JSON of each pydantic argument with its value, and return the issues."""
        from holdfast.toolkit import pydantic_types

        issues: list[Issue] = []
        for parameter in self._pydantic_parameters:
            if parameter.name in values:
                values[parameter.name], found = pydantic_types.validate(
                    parameter.annotation, parameter.name, bytes(values[parameter.name])
                )
                issues += found
        return issues

    def _find_non_finite(self, values: dict[str, Any]) -> list[Issue]:
        """The issues with strings such as "nan", which become numbers that JSON does not have."""
        return [
            _issue(name, "value", "Expected a number, not NaN or an infinity.")
            for name, value in values.items()
            if not isinstance(value, Raw) and not is_finite(value)
        ]

    @cached_property
    def json_schema(self) -> JsonObject:
        """The JSON Schema of the arguments."""
        if not self.parameters:
            return _EMPTY_SCHEMA
        _, components = msgspec.json.schema_components([self._struct], ref_template="#/$defs/{name}")
        schema: JsonObject = components.pop(_STRUCT_NAME)
        definitions: JsonObject = dict(components)
        properties = schema["properties"]
        assert isinstance(properties, dict)
        for parameter in self.parameters.values():
            if parameter.uses_pydantic:
                from holdfast.toolkit import pydantic_types

                properties[parameter.name], more = _rename_taken_definitions(
                    *pydantic_types.json_schema(parameter.annotation), taken=definitions
                )
                definitions |= more
            elif not is_simple(parameter.annotation):
                add_details(properties[parameter.name], definitions, parameter.annotation, is_input=True)
            argument_schema = properties[parameter.name]
            assert isinstance(argument_schema, dict)
            argument_schema |= parameter.schema_default()
        schema.pop("title", None)
        drop_repeated_titles(definitions)
        if not schema["required"]:
            del schema["required"]  # JSON Schema draft 4 does not allow an empty list
        if definitions:
            schema["$defs"] = definitions
        add_enum_types(schema)
        order_choices(schema, [parameter.annotation for parameter in self.parameters.values()])
        return schema

    @cached_property
    def param_headers(self) -> tuple[ParamHeader, ...]:
        """The arguments that HTTP clients repeat in headers."""
        return find_param_headers(self.json_schema)


def find_param_headers(schema: JsonObject) -> tuple[ParamHeader, ...]:
    """The arguments that a schema marks with `x-mcp-header`."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return ()
    return tuple(
        ParamHeader(path=(name,), header=header, is_number=argument.get("type") == "integer")
        for name, argument in properties.items()
        if isinstance(argument, dict) and isinstance(header := argument.get(PARAM_HEADER_KEY), str)
    )


def drop_repeated_titles(definitions: JsonObject) -> None:
    """Remove each title that only repeats the name of its type."""
    for name, definition in definitions.items():
        if isinstance(definition, dict) and definition.get("title") == name:
            del definition["title"]


def _rename_taken_definitions(
    schema: JsonObject, definitions: JsonObject, taken: JsonObject
) -> tuple[JsonObject, JsonObject]:
    """If a name means two types, add a number to each taken name. Return the schema with changed references, and the definitions."""
    if all(taken.get(name, definition) == definition for name, definition in definitions.items()):
        return schema, definitions
    names: dict[str, str] = {}
    for name in definitions:
        new, number = name, 2
        while new in taken or new in names.values():
            new, number = f"{name}{number}", number + 1
        names[name] = new
    references = {f"#/$defs/{name}": f"#/$defs/{new}" for name, new in names.items()}

    def rename(part: Json) -> Json:
        match part:
            case str():
                return references.get(part, part)
            case list():
                return [rename(item) for item in part]
            case dict():
                return {key: rename(value) for key, value in part.items()}
            case _:
                return part

    return _object(rename(schema)), {
        names[name]: rename(definition) for name, definition in definitions.items()
    }


def _object(value: Json) -> JsonObject:
    assert isinstance(value, dict)
    return value


def _inner_schemas(schema: JsonObject, step: re.Match[str]) -> Iterator[JsonObject]:
    """The possible schemas of the member or item that a step leads to."""
    properties, name = schema.get("properties"), step["name"]
    if name:
        inner = [properties.get(name) if isinstance(properties, dict) else None]
    else:
        prefix = schema.get("prefixItems")
        at = int(step["index"]) if step["index"].isdigit() else -1
        item = prefix[at] if isinstance(prefix, list) and 0 <= at < len(prefix) else None
        inner = [item, schema.get("items"), schema.get("additionalProperties")]
    yield from (part for part in inner if isinstance(part, dict))


def _enum_of(schema: JsonObject) -> list[Json]:
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else []


def _issue(field: str, code: str, message: str) -> Issue:
    return {"field": field, "code": code, "message": message}


def _issue_from_msgspec(name: str, message: str) -> Issue:
    """An issue made from an error message of msgspec, such as "Expected `int`, got `str` - at `$[0].size`"."""
    what, _, where = message.partition(" - at `")
    in_key, _, key_path = where.partition("key` in `")  # as in "Expected … - at `key` in `$.sizes`"
    if key_path and not in_key:
        what, where = f"A key of this object: {what[:1].lower()}{what[1:]}", key_path
    path = where.rstrip("`").removeprefix("$")
    if what.startswith("Object missing required"):
        code = "missing"
    elif what.startswith("Object contains unknown"):
        code = "unknown"
    elif "Invalid enum value" in what or "Invalid value" in what:
        code = "choice"
    elif ", got `" in what:
        code = "type"
    else:
        code = "value"
    return _issue(f"{name}{path}", code, f"{what}.")


def _normalize_name(name: str) -> str:
    """Reduce a name to its letters, without case, width or accents: `Session-ID` and `session_id` become equal."""
    folded = normalize("NFKD", name).casefold()
    return "".join(letter for letter in folded if letter.isalpha())


def order_choices(schema: Json, annotations: Sequence[Any]) -> None:
    """List the choices of each enum in the order in which the author wrote them. msgspec sorts them."""
    enums = [part for part in _walk_schema(schema) if isinstance(part.get("enum"), list)]
    if not enums:
        return
    orders = dict[frozenset[Any], list[Any]]()
    for part in (part for annotation in annotations for part in walk_types(annotation)):
        choices: list[Any] = []
        if get_origin(part) is Literal:
            choices = [*get_args(part)]
        elif isinstance(part, type) and issubclass(part, Enum):
            choices = [member.value for member in part]
        with suppress(TypeError):  # a choice that is not hashable
            orders.setdefault(frozenset(choices), choices)
    for part in enums:
        with suppress(TypeError):
            found = cast("list[Any]", part["enum"])
            part["enum"] = orders.get(frozenset(found), found)


def _walk_schema(schema: Json) -> Iterator[JsonObject]:
    if isinstance(schema, list):
        for part in schema:
            yield from _walk_schema(part)
    elif isinstance(schema, dict):
        yield schema
        for part in schema.values():
            yield from _walk_schema(part)


def add_enum_types(schema: Json) -> None:
    """Add `"type": "string"` to enums of strings: some model APIs require it."""
    if isinstance(schema, list):
        for part in schema:
            add_enum_types(part)
    if not isinstance(schema, dict):
        return
    choices = schema.get("enum")
    if (
        "type" not in schema
        and isinstance(choices, list)
        and all(isinstance(choice, str) for choice in choices)
    ):
        schema["type"] = "string"
    for part in schema.values():
        add_enum_types(part)
