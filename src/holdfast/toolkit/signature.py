"""Read a handler's signature: the arguments that callers send, and the parameters that the dispatcher injects."""

import inspect
from collections.abc import Callable
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.workspace import Workspace
from holdfast.toolkit.argument_schema import ArgumentSchema
from holdfast.toolkit.call import Call
from holdfast.toolkit.given import Given, GivenParameter, find_given, read_given
from holdfast.toolkit.parameter import Parameter, parameter_with_hidden_default, read_parameter
from holdfast.toolkit.type_hints import read_type_hints
from holdfast.toolkit.type_support import is_simple, walk_types

WORKSPACE = "workspace"
_WORKSPACE_DESCRIPTION = "The workspace to work in: its slug, its name, or an absolute path in it. Omit it to use the session's own workspace."
_INJECTED_TYPES = (Call, SessionContext, Workspace)
_METHOD_ADVICE = {"self": " To use a method, make the object first: box.add(define_tool(thing.method))."}


class InjectedParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter that the dispatcher fills in."""

    name: str
    required: bool
    """False if its annotation allows None, as in `session: SessionContext | None`."""


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a handler: the arguments that callers send, and those that the dispatcher injects."""

    arguments: ArgumentSchema
    call: InjectedParameter | None = None
    session: InjectedParameter | None = None
    workspace: InjectedParameter | None = None
    given: tuple[GivenParameter, ...] = ()
    """The parameters that providers give."""
    returns: Any = Any
    """The declared type of the result; `Any` if none is declared."""


def read_signature(tool: str, handler: Callable[..., Any], *, lax: bool = False) -> Signature:
    """Read a handler's signature; raises BAD_TOOL when callers could not call the handler, or could not send an argument.

    If `lax`, strings are converted to the numbers and booleans that they represent.
    """
    parameters: list[Parameter] = []
    injected: dict[type, InjectedParameter] = {}
    given: list[GivenParameter] = []
    hints = _read_type_hints(tool, handler)
    for name, declared in inspect.signature(handler).parameters.items():
        if declared.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise _bad_tool(tool, f"{str(declared)!r} cannot be passed by keyword.")
        if name not in hints:
            raise _bad_tool(
                tool, f"its parameter {name!r} has no type annotation.{_METHOD_ADVICE.get(name, '')}"
            )
        if name.startswith("_"):
            raise _bad_tool(tool, f"its parameter {name!r} begins with an underscore. Rename it.")
        if isinstance(declared.default, Given):
            raise _bad_tool(
                tool, f"write its parameter {name!r} as Annotated[…, Given(…)], without a default."
            )
        if (provided := find_given(hints[name])) is not None:
            given.append(read_given(tool, name, provided))
            continue
        kind, required = _injected_type(hints[name])
        if kind is None:
            parameters.append(_read_argument(tool, name, hints[name], declared.default))
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
            parameters.append(parameter_with_hidden_default(WORKSPACE, annotation))
    return Signature(
        arguments=ArgumentSchema(parameters, lax=lax),
        call=injected.get(Call),
        session=injected.get(SessionContext),
        workspace=injected.get(Workspace),
        given=tuple(given),
        returns=hints.get("return", Any),
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
    """Read an argument that callers send. Neither its type nor a field of it may be something that is injected."""
    for part in () if is_simple(annotation) else walk_types(annotation):
        if isinstance(part, Given):
            raise _bad_tool(
                tool,
                f"Given is inside the type of its parameter {name!r}. Write Annotated[…, Given(…)] around the type of a parameter.",
            )
        if any(part is kind for kind in _INJECTED_TYPES):
            raise _bad_tool(
                tool,
                f"its parameter {name!r} would let callers send a {part.__name__}. Write a parameter with the type {part.__name__} alone.",
            )
    return read_parameter(tool, name, annotation, default)


def find_function(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The function that has the types and the docstring of a handler, which may be a `partial` or an object with `__call__`."""
    while isinstance(handler, partial):
        handler = cast("Callable[..., Any]", handler.func)
    if inspect.isroutine(handler) or inspect.isclass(handler) or hasattr(handler, "__wrapped__"):
        return handler
    return cast("Any", handler).__call__


def find_description(handler: Callable[..., Any]) -> str:
    """The docstring of a handler. For an object with `__call__`: the docstring of this method, or else of its class."""
    own = inspect.getdoc(find_function(handler))
    return own or (inspect.getdoc(handler) if not isinstance(handler, partial) else None) or ""


def _read_type_hints(tool: str, handler: Callable[..., Any]) -> dict[str, Any]:
    handler = find_function(handler)
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise _bad_tool(tool, "it is a generator. Return the result, and report progress with call.progress.")
    try:
        return read_type_hints(handler)
    except (AttributeError, NameError, SyntaxError, TypeError) as error:
        raise _bad_tool(tool, f"its types cannot be read: {str(error).rstrip('.')}.") from None


def _bad_tool(tool: str, problem: str) -> HoldfastError:
    return HoldfastError(codes.BAD_TOOL, f"{tool!r} cannot be added: {problem}")
