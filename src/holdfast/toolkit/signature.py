"""Read a handler's signature: the arguments that callers send, and the parameters that the dispatcher injects."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.workspace import Workspace
from holdfast.toolkit.argument_schema import ArgumentSchema
from holdfast.toolkit.call import Call
from holdfast.toolkit.parameter import Parameter, read_parameter, walk_annotation

WORKSPACE = "workspace"
_WORKSPACE_DESCRIPTION = "The workspace to work in: its slug, its name, or an absolute path in it. Omit it to use the session's own workspace."
# A default that makes an argument optional. The schema does not show it, because it is not JSON.
_HIDDEN_DEFAULT = object()
_INJECTED_TYPES = (Call, SessionContext, Workspace)


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedParameter:
    """A parameter that the dispatcher fills in."""

    name: str
    required: bool
    """False if its annotation allows None, as in `session: SessionContext | None`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters of a handler: the arguments that callers send, and up to three that the dispatcher injects."""

    arguments: ArgumentSchema
    call: InjectedParameter | None = None
    session: InjectedParameter | None = None
    workspace: InjectedParameter | None = None


def read_signature(tool: str, handler: Callable[..., Any]) -> Signature:
    """Read a handler's signature; raises BAD_TOOL when the handler cannot be a tool."""
    parameters: list[Parameter] = []
    injected: dict[type, InjectedParameter] = {}
    hints = _read_type_hints(tool, handler)
    for name, declared in inspect.signature(handler).parameters.items():
        if declared.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise _bad_tool(tool, f"{str(declared)!r} cannot be passed by keyword.")
        if name not in hints:
            raise _bad_tool(tool, f"its parameter {name!r} has no type annotation.")
        if name.startswith("_"):
            raise _bad_tool(tool, f"its parameter {name!r} begins with an underscore.")
        kind, required = _injected_type(hints[name])
        if kind is None:
            default = UNSET if declared.default is inspect.Parameter.empty else declared.default
            parameters.append(_read_argument(tool, name, hints[name], default))
            continue
        if kind in injected:
            raise _bad_tool(tool, f"two of its parameters have the type {kind.__name__}.")
        injected[kind] = InjectedParameter(name=name, required=required)
        if kind is Workspace:
            if name != WORKSPACE:
                raise _bad_tool(
                    tool, f"its parameter of type Workspace must be called {WORKSPACE!r}, not {name!r}."
                )
            annotation = Annotated[str, _WORKSPACE_DESCRIPTION]
            parameters.append(read_parameter(tool, WORKSPACE, annotation, default=_HIDDEN_DEFAULT))
    return Signature(
        arguments=ArgumentSchema(parameters),
        call=injected.get(Call),
        session=injected.get(SessionContext),
        workspace=injected.get(Workspace),
    )


def _injected_type(annotation: Any) -> tuple[type | None, bool]:
    """The type that the dispatcher injects for this annotation (None for an argument), and whether it is required."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    without_none = [member for member in members if member is not NoneType]
    if len(without_none) == 1 and without_none[0] in _INJECTED_TYPES:
        return without_none[0], len(members) == 1
    return None, True


def _read_argument(tool: str, name: str, annotation: Any, default: object) -> Parameter:
    """Read an argument that callers send. Its type must not contain a type that the dispatcher injects."""
    for part in walk_annotation(annotation):
        if part in _INJECTED_TYPES:
            raise _bad_tool(
                tool,
                f"its parameter {name!r} would let callers send a {part.__name__}. Annotate it with {part.__name__} alone.",
            )
    return read_parameter(tool, name, annotation, default)


def _read_type_hints(tool: str, handler: Callable[..., Any]) -> dict[str, Any]:
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise _bad_tool(tool, "it is a generator. Return the result, and report progress with call.progress.")
    try:
        return get_type_hints(handler, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError) as error:
        raise _bad_tool(tool, f"its types cannot be read: {error}.") from None


def _bad_tool(tool: str, problem: str) -> HoldfastError:
    return HoldfastError(codes.BAD_TOOL, f"{tool!r} cannot be a tool: {problem}")
