"""What a handler's signature says: which arguments a call has, and what else the handler wants to be given."""

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
from holdfast.toolkit.arguments import Arguments
from holdfast.toolkit.call import Call
from holdfast.toolkit.parameter import Parameter, parameter, parts

WORKSPACE = "workspace"
_SHOWN_WORKSPACE = "The workspace to work in: its slug, its name, or an absolute path in it. Leave it out for the session's own."
_LEFT_OUT = object()  # the session's own workspace, which no schema can know
_GIVEN = (Call, SessionContext, Workspace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A parameter that the dispatcher fills, and no caller: its name, and whether it must have something to fill it with."""

    name: str
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The arguments, and what the handler is given besides: the call, the session, the workspace."""

    arguments: Arguments
    call: Given | None = None
    session: Given | None = None
    workspace: Given | None = None


def signature_of(tool: str, handler: Callable[..., Any]) -> Signature:
    """Read a handler's signature; one that cannot be called by name fails at boot."""
    parameters: list[Parameter] = []
    given: dict[type, Given] = {}
    hints = _hints(tool, handler)
    for name, declared in inspect.signature(handler).parameters.items():
        if declared.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise _bad(tool, f"{declared} cannot be given by name.")
        if name not in hints:
            raise _bad(tool, f"its parameter {name!r} has no type.")
        if name.startswith("_"):
            raise _bad(tool, f"its parameter {name!r} begins with an underscore.")
        kind, required = _given(hints[name])
        if kind is None:
            default = UNSET if declared.default is inspect.Parameter.empty else declared.default
            parameters.append(_argument(tool, name, hints[name], default))
            continue
        if kind in given:
            raise _bad(tool, f"it wants the {kind.__name__} twice.")
        given[kind] = Given(name=name, required=required)
        if kind is Workspace:
            if name != WORKSPACE:
                raise _bad(tool, f"its workspace must be called {WORKSPACE!r}, not {name!r}.")
            shown = Annotated[str, _SHOWN_WORKSPACE]
            parameters.append(parameter(tool, WORKSPACE, shown, default=_LEFT_OUT))
    return Signature(
        arguments=Arguments(parameters),
        call=given.get(Call),
        session=given.get(SessionContext),
        workspace=given.get(Workspace),
    )


def _given(annotation: Any) -> tuple[type | None, bool]:
    """Which of the things that only the dispatcher gives a parameter wants, and whether it can do without."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    wanted = [kind for kind in kinds if kind is not NoneType]
    if len(wanted) == 1 and wanted[0] in _GIVEN:
        return wanted[0], len(kinds) == 1
    return None, True


def _argument(tool: str, name: str, annotation: Any, default: object) -> Parameter:
    """An argument that callers send. What only the host can vouch for must not be one, in no disguise."""
    for part in parts(annotation):
        if part in _GIVEN:
            raise _bad(
                tool,
                f"its parameter {name!r} would let callers send a {part.__name__}. Take just a {part.__name__}.",
            )
    return parameter(tool, name, annotation, default)


def _hints(tool: str, handler: Callable[..., Any]) -> dict[str, Any]:
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise _bad(tool, "it yields. Return what it gives back, and tell of progress with call.progress.")
    try:
        return get_type_hints(handler, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError) as error:
        raise _bad(tool, f"its types cannot be read: {error}.") from None


def _bad(tool: str, problem: str) -> HoldfastError:
    return HoldfastError(codes.BAD_TOOL, f"{tool!r} cannot be a tool: {problem}")
