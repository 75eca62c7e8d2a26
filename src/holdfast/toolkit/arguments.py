"""The arguments of a tool: what they must be, and what is wrong with those of a call."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.parameter import MIRROR_KEY, Issue, Parameter
from holdfast.wire.mcp.mirrors import Mirror, Mirrors
from holdfast.wire.strict import DECODE_ERRORS, why

_NOTHING: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}
_STRUCT = "Arguments"
_MOST_ISSUES = 32  # whoever gets that many things wrong starts over anyway

# A model that was told to forge the context sends these to any tool. They are dropped: they mean nothing here.
_CONTEXT_WORDS = frozenset({"sessionid", "trust", "trustlevel", "workspaceid", "userid", "parentsessionid"})


class BadArguments(Exception):
    """The arguments of a call are not what the tool takes."""

    def __init__(self, issues: list[Issue]) -> None:
        super().__init__(f"{len(issues)} issues")
        self.issues = issues


class Arguments:
    """Reads the arguments of calls; the same object tells clients what it reads."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self._foreign = tuple(parameter for parameter in parameters if parameter.foreign)
        self._optional = any(not parameter.required for parameter in parameters)
        self._struct = msgspec.defstruct(
            _STRUCT,
            [parameter.field() for parameter in parameters],
            kw_only=True,
            forbid_unknown_fields=True,
        )

    @cached_property
    def _decode(self) -> Any:
        return msgspec.json.Decoder(self._struct).decode

    def parse(self, raw: Raw | bytes) -> dict[str, Any]:
        """The arguments by name, each of its exact type; those left out are left out here too."""
        try:
            values = msgspec.structs.asdict(self._decode(raw))
        except DECODE_ERRORS:
            values = self._one_by_one(raw)
        if self._optional:
            values = {name: value for name, value in values.items() if value is not UNSET}
        return self._read_foreign(values) if self._foreign else values

    def _one_by_one(self, raw: Raw | bytes) -> dict[str, Any]:
        """What a decoder cannot say in one go: every issue there is, not just the first."""
        try:
            given = msgspec.json.decode(raw, type=dict[str, Raw])
        except DECODE_ERRORS:
            raise BadArguments([_issue("", "type", "The arguments must be an object.")]) from None
        issues: list[Issue] = []
        values: dict[str, Any] = {}
        for parameter in self.parameters.values():
            name = parameter.name
            if name not in given:
                if parameter.required:
                    issues.append(_issue(name, "missing", "It is required."))
                continue
            try:
                values[name] = (
                    given[name]
                    if parameter.foreign
                    else msgspec.json.decode(given[name], type=parameter.kind)
                )
            except DECODE_ERRORS as error:
                issues.append(_decoder_issue(name, why(error)))
        known = ", ".join(self.parameters) or "none"
        for name in given.keys() - self.parameters.keys():
            if _skeleton(name) not in _CONTEXT_WORDS:
                issues.append(_issue(name[:80], "unknown", f"There is no such argument. There are: {known}."))
        if issues:
            raise BadArguments(issues[:_MOST_ISSUES])
        return values

    def _read_foreign(self, values: dict[str, Any]) -> dict[str, Any]:
        from holdfast.toolkit import foreign

        issues: list[Issue] = []
        for parameter in self._foreign:
            if parameter.name in values:
                values[parameter.name], found = foreign.read(
                    parameter.kind, parameter.name, bytes(values[parameter.name])
                )
                issues += found
        if issues:
            raise BadArguments(issues)
        return values

    @cached_property
    def schema(self) -> JsonObject:
        """The arguments as JSON Schema, for clients."""
        if not self.parameters:
            return _NOTHING
        _, known = msgspec.json.schema_components([self._struct], ref_template="#/$defs/{name}")
        said: JsonObject = known.pop(_STRUCT)
        below: JsonObject = dict(known)
        properties = said["properties"]
        assert isinstance(properties, dict)
        for parameter in self.parameters.values():
            if parameter.foreign:
                from holdfast.toolkit import foreign

                properties[parameter.name], further = foreign.schema(parameter.kind)
                below |= further
            shown = properties[parameter.name]
            assert isinstance(shown, dict)
            shown |= parameter.shown_default()
        said.pop("title", None)
        if not said["required"]:
            del said["required"]  # old validators take no empty list
        if below:
            said["$defs"] = below
        _name_enums(said)
        return said

    @cached_property
    def mirrors(self) -> Mirrors:
        """The arguments that HTTP clients repeat in headers."""
        return mirrors_in(self.schema)


def mirrors_in(schema: JsonObject) -> Mirrors:
    """The arguments that a schema wants repeated in headers."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return ()
    return tuple(
        Mirror(path=(name,), header=header, number=shown.get("type") == "integer")
        for name, shown in properties.items()
        if isinstance(shown, dict) and isinstance(header := shown.get(MIRROR_KEY), str)
    )


def _issue(field: str, code: str, message: str) -> Issue:
    return {"field": field, "code": code, "message": message}


def _decoder_issue(name: str, message: str) -> Issue:
    """An issue in a decoder's words: `Expected `int`, got `str` - at `$[0].size``."""
    what, _, where = message.partition(" - at `")
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


def _skeleton(name: str) -> str:
    """A name without what can be varied to look new: case, width, and everything but letters."""
    import unicodedata

    folded = unicodedata.normalize("NFKD", name).casefold()
    return "".join(letter for letter in folded if letter.isalpha())


def _name_enums(schema: Json) -> None:
    """Say the type of a choice between words: some models' interfaces insist on it."""
    if isinstance(schema, list):
        for part in schema:
            _name_enums(part)
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
        _name_enums(part)
