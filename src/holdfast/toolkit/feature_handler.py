"""What resources, prompts and completions have in common: a handler that runs like the handler of a tool."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from holdfast.model.json import JsonObject
from holdfast.toolkit.argument_schema import ArgumentSchema, BadArgumentsError
from holdfast.toolkit.errors import CodeRegistry
from holdfast.toolkit.guards import Guard
from holdfast.toolkit.operation import Operation
from holdfast.toolkit.return_type import ReturnType
from holdfast.toolkit.signature import find_description, find_function, read_signature
from holdfast.toolkit.tool import Tool, ToolDefinition

if TYPE_CHECKING:
    from holdfast.toolkit.server_state import Lifespan


class FeatureOptions(TypedDict, total=False):
    """The options that resources and prompts share with tools."""

    name: str
    title: str
    description: str
    codes: Sequence[str]
    guards: Sequence[Guard]
    deadline: float
    meta: JsonObject | None


@dataclass(frozen=True, slots=True)
class BoxContext:
    """What the handler of a feature gets from its box: the codes that it may declare, and the lifespan."""

    codes: CodeRegistry
    lifespan: "Lifespan | None" = None


def build_handler(handler: Callable[..., Any], name: str, options: FeatureOptions, box: BoxContext) -> Tool:
    """Check a handler, and make a tool of it that the dispatcher can run. It is not listed among the tools."""
    definition = ToolDefinition(
        name=name,
        handler=handler,
        description=options.get("description") or find_description(handler),
        title=options.get("title", ""),
        operation=Operation.QUERY,
        codes=tuple(options.get("codes", ())),
        guards=tuple(options.get("guards", ())),
        deadline=options.get("deadline"),
        meta=options.get("meta"),
        lifespan=box.lifespan,
    )
    signature = read_signature(name, handler)
    return Tool(
        definition=definition,
        name=name,
        operation=Operation.QUERY,
        signature=signature,
        return_type=ReturnType(Any),
        envelope="meta",
        declared_codes=tuple(box.codes.get(code, name) for code in definition.codes),
        is_async=inspect.iscoroutinefunction(find_function(handler)),
    )


class TextArguments:
    """Arguments that clients send as text: the arguments of prompts and the variables of URIs. A list or an object is sent as JSON."""

    def __init__(self, tool: Tool) -> None:
        self._schema = ArgumentSchema(list(tool.signature.arguments.parameters.values()), lax=True)

    def parse(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Decode the arguments; raises `BadArgumentsError`.

        They are first read as strings, because a string argument may look like JSON, and then as JSON.
        """
        try:
            return self._schema.parse(msgspec.json.encode(texts))
        except BadArgumentsError as error:
            as_json = {name: _json_or_text(text) for name, text in texts.items()}
            if as_json == texts:
                raise
            try:
                return self._schema.parse(msgspec.json.encode(as_json))
            except BadArgumentsError:
                raise error from None


def _json_or_text(text: str) -> object:
    if text[:1] not in ("[", "{"):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
