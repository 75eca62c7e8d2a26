"""Completion: suggestions for the arguments of prompts and for the variables of resource templates."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.feature_handler import BoxContext, build_handler
from holdfast.toolkit.signature import WORKSPACE
from holdfast.toolkit.tool import Tool

MAX_VALUES = 100  # MCP allows no more suggestions in one answer
_PARAMETERS = {"value", "arguments", WORKSPACE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Suggestions, and how many there are in all. A function that returns all suggestions can return a list instead."""

    values: list[str]
    total: int | None = None
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class Completer:
    """A function that suggests values for one argument."""

    tool: Tool
    handler: Callable[..., Any]

    @property
    def takes_value(self) -> bool:
        """Whether it gets what the user has typed. If not, the toolkit filters its suggestions."""
        return "value" in self.tool.signature.arguments.parameters


def build_completer(target: str, argument: str, handler: Callable[..., Any], box: BoxContext) -> Completer:
    """Check a completion function; raises BAD_TOOL when it is not valid."""
    tool = build_handler(handler, f"{target} {argument}", {}, box)
    unknown = set(tool.signature.arguments.parameters) - _PARAMETERS
    if unknown:
        raise HoldfastError(
            codes.BAD_TOOL,
            f"The completion of {argument!r} of {target!r} cannot be added: its parameter {min(unknown)!r} is not "
            "`value: str` (what the user has typed) or `arguments: dict[str, str]` (the other arguments).",
        )
    return Completer(tool, handler)


def find_choices(tool: Tool, argument: str) -> list[str]:
    """The choices of an argument whose type is a `Literal`, an enum or `bool`, also as `X | None`; empty for other types."""
    schema = tool.signature.arguments.json_schema
    properties, definitions = schema["properties"], schema.get("$defs", {})
    assert isinstance(properties, dict)
    assert isinstance(definitions, dict)
    return list(_choices_in(properties.get(argument), definitions))


def _choices_in(schema: Json, definitions: JsonObject) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if isinstance(reference := schema.get("$ref"), str):
        yield from _choices_in(definitions.get(reference.rpartition("/")[2]), definitions)
    elif isinstance(members := schema.get("anyOf"), list):
        for member in members:
            yield from _choices_in(member, definitions)
    elif schema.get("type") == "boolean":
        yield from ("true", "false")
    elif isinstance(choices := schema.get("enum"), list):
        yield from (str(choice) for choice in choices if choice is not None)


def to_completion(suggested: object, value: str, *, filter_by_value: bool) -> JsonObject:
    """Suggestions in MCP's form. With `filter_by_value`, only those that begin with what the user has typed."""
    if isinstance(suggested, Completion):
        values, total, has_more = suggested.values, suggested.total, suggested.has_more
    else:
        values, total, has_more = (
            [str(each) for each in cast("Iterable[object]", suggested or ())],
            None,
            False,
        )
    if filter_by_value:
        start = value.casefold()
        values = [each for each in values if each.casefold().startswith(start)]
    completion: JsonObject = {"values": list(values[:MAX_VALUES])}
    completion["total"] = len(values) if total is None else total
    completion["hasMore"] = has_more or len(values) > MAX_VALUES
    return {"completion": completion}
