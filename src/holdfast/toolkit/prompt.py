"""Prompts: messages that users choose from a list and fill in."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.toolkit.check_options import check_options
from holdfast.toolkit.feature_handler import BoxParts, FeatureOptions, TextArguments, build_handler
from holdfast.toolkit.tool import Tool

_PROMPT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?")


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


def build_prompt(handler: Callable[..., Any], options: PromptOptions, parts: BoxParts) -> ServedPrompt:
    """Check a prompt; raises BAD_TOOL when it is not valid."""
    check_options("@box.prompt", options, PromptOptions.__annotations__)
    name = options.get("name") or getattr(handler, "__name__", "")
    if not _PROMPT_NAME.fullmatch(name):
        raise HoldfastError(
            codes.BAD_TOOL,
            f"{name[:80]!r} is not a valid prompt name: use letters, digits, '_', '-' and '.'.",
        )
    tool = build_handler(handler, name, options, parts)
    return ServedPrompt(name=name, tool=tool, arguments=TextArguments(tool), handler=handler, options=options)
