"""Prompts: messages that users choose from a list and fill in."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args, get_origin

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.toolkit.check_options import check_options
from holdfast.toolkit.content import CONTENT_TYPES
from holdfast.toolkit.feature_handler import BoxContext, FeatureOptions, TextArguments, build_handler
from holdfast.toolkit.message import Message
from holdfast.toolkit.return_type import union_members
from holdfast.toolkit.tool import NAME_RULE, TOOL_NAME, Tool
from holdfast.toolkit.type_support import replace_object, unwrap_type


class PromptOptions(FeatureOptions, total=False):
    """The keyword arguments of `@box.prompt(...)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPrompt:
    """A prompt that passed all checks."""

    name: str
    tool: Tool
    arguments: TextArguments
    handler: Callable[..., Any]
    options: PromptOptions

    def listing(self) -> JsonObject:
        """The prompt as clients see it in a list."""
        definition = self.tool.definition
        listed: dict[str, Any] = {"name": self.name}
        if definition.title:
            listed["title"] = definition.title
        if definition.description:
            listed["description"] = definition.description
        if arguments := [self._describe(name) for name in self.tool.signature.arguments.parameters]:
            listed["arguments"] = arguments
        if definition.meta is not None:
            listed["_meta"] = definition.meta
        return listed

    def _describe(self, name: str) -> JsonObject:
        arguments = self.tool.signature.arguments
        schema = arguments.json_schema["properties"]
        field = schema.get(name) if isinstance(schema, dict) else None
        described: JsonObject = {"name": name, "required": arguments.parameters[name].required}
        if isinstance(field, dict) and isinstance(text := field.get("description"), str):
            described["description"] = text
        return described


def build_prompt(handler: Callable[..., Any], options: PromptOptions, box: BoxContext) -> ServedPrompt:
    """Check a prompt; raises BAD_TOOL when it is not valid."""
    check_options("@box.prompt", options, PromptOptions.__annotations__)
    name = options.get("name") or getattr(handler, "__name__", "")
    if not name:
        raise HoldfastError(codes.BAD_TOOL, f"{handler!r} has no name: write @box.prompt(name=…).")
    if not TOOL_NAME.fullmatch(name):
        raise HoldfastError(codes.BAD_TOOL, f"{name[:80]!r} is not a valid prompt name: {NAME_RULE}.")
    tool = build_handler(handler, name, options, box)
    if not all(map(_may_be_messages, union_members(replace_object(tool.signature.returns)))):
        raise HoldfastError(
            codes.BAD_TOOL,
            f"The prompt {name!r} cannot be added: it returns {_name_of(tool.signature.returns)}. Return a str, a Message, content such as "
            "Image, or a list of them.",
        )
    return ServedPrompt(name=name, tool=tool, arguments=TextArguments(tool), handler=handler, options=options)


def _may_be_messages(kind: Any) -> bool:
    """Whether values of a type may be messages. A type that says nothing, such as `Any`, may."""
    kind = unwrap_type(kind)
    if kind is Any:
        return True
    origin = get_origin(kind) or kind
    if not isinstance(origin, type):
        return kind is not None
    if issubclass(origin, list | tuple) or origin in (Sequence, Iterable, Collection):
        items = (item for item in get_args(kind) if item is not Ellipsis)
        return all(_may_be_messages(member) for item in items for member in union_members(item))
    return issubclass(origin, (str, Message, *CONTENT_TYPES))


def _name_of(kind: Any) -> str:
    return "None" if kind in (None, NoneType) else getattr(kind, "__name__", str(kind))
