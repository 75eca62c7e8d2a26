"""A tool as its author defines it, and the checked tool that is built from the definition."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast, get_origin

import msgspec

from holdfast.model import codes
from holdfast.model.check_seconds import check_seconds
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.toolkit.argument_schema import find_param_headers
from holdfast.toolkit.check_options import check_options, check_parameter_count
from holdfast.toolkit.errors import COMMON_CODES, EVAL_CODES, WORKSPACE_CODES, CodeRegistry
from holdfast.toolkit.guards import Guard
from holdfast.toolkit.operation import NO_HINTS, Annotations, Operation, parse_operation
from holdfast.toolkit.paging import Page
from holdfast.toolkit.return_type import EnvelopeKind, ReturnType, read_return_type, union_members
from holdfast.toolkit.signature import Signature, find_description, find_function, read_signature
from holdfast.wire.mcp.tools import ParamHeader

if TYPE_CHECKING:
    from holdfast.toolkit.server_state import Lifespan

Handler = Callable[..., Any]

TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
NAME_RULE = "use 1 to 128 letters (a-z, A-Z), digits, '_', '-' and '.'"
_ANY_OBJECT = object()  # stands for the object of a method whose types are read


class ToolOptions(TypedDict, total=False):
    """The keyword arguments of `@box.tool(...)`. They are fields of `ToolDefinition`."""

    name: str
    title: str
    description: str
    operation: Literal["command", "query", "eval", "screenshot", "logs", "dialog", "window_info"]
    requires_eval_flag: bool
    codes: Sequence[str]
    input_schema: JsonObject
    annotations: Annotations
    guards: Sequence[Guard]
    deadline: float
    meta: JsonObject | None
    required_capabilities: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as its author defines it."""

    name: str
    handler: Handler
    description: str
    title: str = ""
    operation: str = Operation.COMMAND
    requires_eval_flag: bool = False
    """If True, the tool is listed and runs only if the server allows it: `--allow-eval`, or `allow_eval=True` in Python."""
    codes: tuple[str, ...] = ()
    """The codes of the errors that the handler raises. The toolkit adds the codes of its own errors."""
    input_schema: JsonObject | None = None
    """The schema that clients see, instead of the one made from the signature. Arguments still must match the signature."""
    annotations: Annotations = NO_HINTS
    guards: tuple[Guard, ...] = ()
    deadline: float | None = None
    """Seconds that a call may take; None for the box's default."""
    meta: JsonObject | None = None
    """The tool's `_meta` in `tools/list`."""
    required_capabilities: Mapping[str, Any] | None = None
    """The capabilities that the client must declare, in MCP's form: `{"sampling": {}}`."""
    lifespan: "Lifespan | None" = None
    """The lifespan of the box that the tool was added to; its state is `call.state`."""

    def __post_init__(self) -> None:
        check_seconds(f"deadline of {self.name}", self.deadline, codes.BAD_TOOL)


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that passed all checks and can be called."""

    definition: ToolDefinition
    name: str
    """The name that clients see: the author's, with dots replaced by underscores."""
    operation: Operation
    signature: Signature
    return_type: ReturnType
    envelope: EnvelopeKind
    declared_codes: tuple[Code, ...]
    """The error codes that the author declared."""
    is_async: bool
    is_short: bool = False
    """Whether `tools/list` leaves out what a model can do without: the box's `listing="short"`."""

    @property
    def may_ask(self) -> bool:
        """Whether the handler, a guard or a provider gets the call, and so can ask the client."""
        signature = self.signature
        return bool(
            signature.call
            or self.definition.guards
            or any(parameter.provider.uses_call for parameter in signature.given)
        )

    @property
    def codes(self) -> tuple[Code, ...]:
        """The declared codes, and the codes that the toolkit may raise for such a tool, sorted by name.

        Not added are the codes of failed questions to the client, NOT_RUNNING and TOO_LARGE.
        """
        definition, signature = self.definition, self.signature
        possible = {*self.declared_codes, *COMMON_CODES}
        if signature.workspace:
            possible |= {*WORKSPACE_CODES}
        if definition.requires_eval_flag:
            possible |= {*EVAL_CODES}
        if definition.guards:
            possible |= {codes.DENIED, codes.NO_CONTEXT}
        if signature.session:
            possible |= {codes.NO_CONTEXT}
        if Page in {get_origin(member) or member for member in union_members(signature.returns)}:
            possible |= {codes.BAD_CURSOR}
        return tuple(sorted(possible, key=lambda code: code.name))

    @property
    def schema(self) -> JsonObject:
        """The JSON Schema of the arguments."""
        return self.definition.input_schema or self.signature.arguments.json_schema

    @property
    def output_schema(self) -> JsonObject | None:
        """The JSON Schema of the structured content; None if the handler does not declare what it returns."""
        return self.return_type.output_schema(self.envelope)

    @property
    def param_headers(self) -> tuple[ParamHeader, ...]:
        """The arguments that HTTP clients repeat in headers."""
        schema = self.definition.input_schema
        return self.signature.arguments.param_headers if schema is None else find_param_headers(schema)

    @property
    def description(self) -> str:
        """The author's description, with the error codes that the author declared. The manifest has all of `codes`."""
        if not self.definition.codes:
            return self.definition.description
        return f"{self.definition.description}\n\nFails with: {', '.join(sorted(self.definition.codes))}.".lstrip()

    @property
    def annotations(self) -> Annotations:
        return self.definition.annotations.with_defaults(self.operation.annotations)


def define_tool(handler: Handler, **options: Unpack[ToolOptions]) -> ToolDefinition:
    """Define a tool for `box.add`. Its name and description default to the handler's name and docstring."""
    check_options("@box.tool", options, ToolOptions.__annotations__)
    if not callable(handler):
        raise HoldfastError(codes.BAD_TOOL, f"A tool must be a function, not a {type(handler).__name__}.")
    fields: dict[str, Any] = {
        "name": getattr(handler, "__name__", ""),
        "description": find_description(handler),
        **options,
        "codes": tuple(options.get("codes", ())),
        "guards": tuple(options.get("guards", ())),
    }
    return ToolDefinition(handler=handler, **fields)


def build_tool(
    definition: ToolDefinition,
    registry: CodeRegistry,
    *,
    envelope: EnvelopeKind = "content",
    lax: bool = False,
    short: bool = False,
) -> Tool:
    """Build the tool from its definition; raises BAD_TOOL when the definition is not valid."""
    name, operation = definition.name, parse_operation(definition.operation)
    if not name:
        raise HoldfastError(codes.BAD_TOOL, f"{definition.handler!r} has no name: write @box.tool(name=…).")
    _check_name(name)
    if not definition.description.strip():
        raise HoldfastError(codes.BAD_TOOL, f"The tool {name!r} has no description. Give it a docstring.")
    if operation is Operation.EVAL and not definition.requires_eval_flag:
        raise HoldfastError(
            codes.BAD_TOOL,
            f"The tool {name!r} evaluates code. Add requires_eval_flag=True to its definition.",
        )
    if not isinstance(cast("object", definition.annotations), Annotations):
        raise HoldfastError(
            codes.BAD_TOOL,
            f"The `annotations` of the tool {name!r} are a {type(definition.annotations).__name__}. "
            f"Write annotations={_suggest_annotations(definition.annotations)}, "
            'or operation="query" for a tool that only reads.',
        )
    for guard in definition.guards:
        check_parameter_count(guard, 1, f"A guard of {name!r} must take one parameter, the call")
    signature, return_type = _read_types(name, definition.handler, envelope, lax=lax)
    return Tool(
        definition=definition,
        name=name.replace(".", "_"),
        operation=operation,
        signature=signature,
        return_type=return_type,
        envelope=envelope,
        declared_codes=tuple(registry.get(code, name) for code in definition.codes),
        is_async=inspect.iscoroutinefunction(find_function(definition.handler)),
        is_short=short,
    )


def _read_types(
    name: str, handler: Handler, envelope: EnvelopeKind, *, lax: bool
) -> tuple[Signature, ReturnType]:
    if isinstance(handler, MethodType) and isinstance(handler.__func__, FunctionType):
        return _read_method_types(name, handler.__func__, envelope, lax=lax)
    signature = read_signature(name, handler, lax=lax)
    return signature, read_return_type(name, signature.returns, envelope)


@lru_cache(maxsize=256)
def _read_method_types(
    name: str, function: FunctionType, envelope: EnvelopeKind, *, lax: bool
) -> tuple[Signature, ReturnType]:
    """The types of a method. They are cached, because some servers make an object, and so a method, for each session."""
    signature = read_signature(name, MethodType(function, _ANY_OBJECT), lax=lax)
    return signature, read_return_type(name, signature.returns, envelope)


def include_tool(tool: Tool, name: str, lifespan: "Lifespan | None") -> Tool:
    """The tool of another box under another name; raises BAD_TOOL when the name is not valid.

    If its own box has no lifespan, the tool gets the lifespan of the box that includes it.
    """
    _check_name(name)
    definition = replace(tool.definition, name=name, lifespan=tool.definition.lifespan or lifespan)
    return msgspec.structs.replace(tool, definition=definition, name=name.replace(".", "_"))


def _check_name(name: str) -> None:
    if not TOOL_NAME.fullmatch(name):
        length = f" ({len(name)} characters)" if len(name) > 128 else ""
        raise HoldfastError(codes.BAD_TOOL, f"{name[:80]!r}{length} is not a valid tool name: {NAME_RULE}.")


def _suggest_annotations(given: object) -> str:
    """How to write hints that were given as a dict."""
    names = {field.encode_name: field.name for field in msgspec.structs.fields(Annotations)}
    hints = cast("dict[object, object]", given) if isinstance(given, dict) else {}
    return f"Annotations({', '.join(f'{name}={hints[hint]}' for hint, name in names.items() if hint in hints) or '…'})"
