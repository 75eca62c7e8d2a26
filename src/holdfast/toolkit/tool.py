"""A tool, as its author defines it."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from holdfast.model import codes as known
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.toolkit.annotations import FOLLOWS, Annotations
from holdfast.toolkit.arguments import mirrors_in
from holdfast.toolkit.codes import ALWAYS, EVAL, WORKSPACE, Codes
from holdfast.toolkit.guards import Guard
from holdfast.toolkit.operation import Operation, parse_operation
from holdfast.toolkit.signature import Signature, signature_of
from holdfast.toolkit.words import ToolWords
from holdfast.wire.mcp.mirrors import Mirrors

Handler = Callable[..., Any]

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """What a tool is called, what it says of itself, what kind of thing it does, and who does it."""

    name: str
    handler: Handler
    description: str
    title: str = ""
    operation: str = Operation.COMMAND
    requires_eval_flag: bool = False
    codes: tuple[str, ...] = ()
    """The codes it can fail with, beside those that every tool can."""
    input_schema: JsonObject | None = None
    """What clients are shown instead of the schema that follows from the handler's signature."""
    annotations: Annotations = FOLLOWS
    guards: tuple[Guard, ...] = ()
    deadline: float | None = None
    """Seconds a call may take; None for the box's own."""
    meta: JsonObject | None = None
    """What clients are told beside, in the tool's `_meta`."""
    needs: Mapping[str, Any] | None = None
    """The capabilities a client must have, by name (`sampling`), as MCP declares them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that passed all checks, and is ready to be called."""

    definition: ToolDefinition
    name: str
    """As clients see it: without dots."""
    operation: Operation
    signature: Signature
    codes: tuple[Code, ...]
    is_async: bool

    @property
    def schema(self) -> JsonObject:
        """What clients are told of its arguments."""
        return self.definition.input_schema or self.signature.arguments.schema

    @property
    def mirrors(self) -> Mirrors:
        """The arguments that HTTP clients repeat in headers."""
        given = self.definition.input_schema
        return self.signature.arguments.mirrors if given is None else mirrors_in(given)

    @property
    def description(self) -> str:
        """What clients are told of it, with every code it can fail with."""
        names = ", ".join(code.name for code in self.codes)
        return f"{self.definition.description}\n\nFails with: {names}.".lstrip()

    @property
    def annotations(self) -> Annotations:
        """The hints for clients."""
        return self.definition.annotations.over(self.operation.annotations)


def tool(handler: Handler, **words: Unpack[ToolWords]) -> ToolDefinition:
    """The definition of a tool: what is not said of it follows from the handler."""
    said: dict[str, Any] = {
        "name": getattr(handler, "__name__", ""),
        "description": inspect.getdoc(handler) or "",
        **words,
        "codes": tuple(words.get("codes", ())),
        "guards": tuple(words.get("guards", ())),
    }
    return ToolDefinition(handler=handler, **said)


def checked(definition: ToolDefinition, registry: Codes) -> Tool:
    """The tool, ready to be called; whatever is wrong with it is wrong before anybody calls."""
    name, operation = definition.name, parse_operation(definition.operation)
    if not _NAME.fullmatch(name):
        raise HoldfastError(
            known.BAD_TOOL, f"{name[:80]!r} is no name for a tool: use letters, digits, '_', '-' and '.'."
        )
    if not definition.description.strip():
        raise HoldfastError(known.BAD_TOOL, f"The tool {name!r} says nothing of itself. Give it a docstring.")
    if operation is Operation.EVAL and not definition.requires_eval_flag:
        raise HoldfastError(
            known.BAD_TOOL, f"The tool {name!r} evaluates code: it needs requires_eval_flag=True."
        )
    signature = signature_of(name, definition.handler)
    declared = (registry.get(code, name) for code in definition.codes)
    return Tool(
        definition=definition,
        name=name.replace(".", "_"),
        operation=operation,
        signature=signature,
        codes=_codes(definition, signature, declared),
        is_async=inspect.iscoroutinefunction(definition.handler),
    )


def _codes(definition: ToolDefinition, signature: Signature, declared: Iterable[Code]) -> tuple[Code, ...]:
    every = {*declared, *ALWAYS}
    if signature.workspace:
        every |= {*WORKSPACE}
    if definition.requires_eval_flag:
        every |= {*EVAL}
    if definition.guards:
        every |= {known.DENIED, known.NO_CONTEXT}
    if signature.session:
        every |= {known.NO_CONTEXT}
    return tuple(sorted(every, key=lambda code: code.name))
