"""Arguments that a provider function gives to a handler. Callers do not see them and cannot send them."""

import inspect
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import msgspec

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.call import Call
from holdfast.toolkit.type_hints import read_type_hints

Per: TypeAlias = Literal["process", "session", "call"]
_LIFETIME_ORDER: dict[str, int] = {"process": 3, "session": 2, "call": 1}


@dataclass(frozen=True, slots=True)
class Given:
    """Marks an argument that a provider gives: `pool: Annotated[Pool, Given(get_pool, per="process")]`.

    The provider is a function, or a generator function that yields the value once and then cleans up; `def` or `async def`.
    Its parameters are of the types `Call` and `SessionContext`, are given themselves, or have defaults. `per` says how long a
    value is kept: for one call, for the caller's session, or until the server ends.
    """

    provider: Callable[..., Any]
    per: Per = "call"


class ProviderKind(Enum):
    """How a provider makes its value."""

    FUNCTION = auto()
    COROUTINE = auto()
    CONTEXT = auto()
    ASYNC_CONTEXT = auto()


class Provider(msgspec.Struct, frozen=True, eq=False):
    """A provider that was checked: what to call, and which parameters it needs."""

    name: str
    make: Callable[..., Any]
    """Returns the value, an awaitable or a context manager, as `kind` says."""
    kind: ProviderKind
    per: Per
    key: tuple[Callable[..., Any], Per]
    """Two arguments with the same key get the same value."""
    call: str = ""
    """The name of its parameter of the type `Call`; empty if it has none."""
    session: str = ""
    """The name of its parameter of the type `SessionContext`; empty if it has none."""
    needs_session: bool = False
    """Whether it cannot be called for a caller without a session."""
    given: "tuple[GivenParameter, ...]" = ()
    """Its parameters whose values come from other providers."""

    @property
    def uses_call(self) -> bool:
        """Whether this provider, or one that it needs, gets the call."""
        return bool(self.call) or any(parameter.provider.uses_call for parameter in self.given)


class GivenParameter(msgspec.Struct, frozen=True):
    """A parameter of a handler or a provider, and who gives its value."""

    name: str
    provider: Provider


def find_given(annotation: Any) -> Given | None:
    """The `Given` in an annotation; None if there is none."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((item for item in get_args(annotation)[1:] if isinstance(item, Given)), None)


def read_given(tool: str, name: str, given: Given) -> GivenParameter:
    """Read a given parameter; raises BAD_TOOL when its provider cannot be called."""
    return GivenParameter(name, _read_provider(tool, given, ()))


def _read_provider(tool: str, given: Given, callers: tuple[Given, ...]) -> Provider:
    """Check a provider, and the providers that it needs. `callers` are the providers that need this one."""
    function, per = given.provider, given.per
    name = getattr(function, "__name__", repr(function))
    if per not in _LIFETIME_ORDER:
        raise _bad_provider(tool, name, f'per={per!r} is not "process", "session" or "call"')
    if any(caller.provider is function for caller in callers):
        raise _bad_provider(tool, name, "it needs itself")
    make, kind = _read_kind(tool, name, function)
    call = session = ""
    needs_session = False
    parameters: list[GivenParameter] = []
    for parameter_name, annotation, has_default in _read_parameters(tool, name, function):
        if (inner := find_given(annotation)) is not None:
            provider = _read_provider(tool, inner, (*callers, given))
            if _LIFETIME_ORDER[provider.per] < _LIFETIME_ORDER[per]:
                raise _bad_provider(
                    tool,
                    name,
                    f"its value is kept per {per}, but it needs {provider.name!r}, per {provider.per}",
                )
            parameters.append(GivenParameter(parameter_name, provider))
        elif annotation is Call:
            if per != "call":
                raise _bad_provider(
                    tool, name, f'its value is kept per {per}, but it takes a Call. Use per="call"'
                )
            call = parameter_name
        elif annotation in (SessionContext, SessionContext | None):
            if per == "process":
                raise _bad_provider(
                    tool,
                    name,
                    'its value is kept per process, but it takes a SessionContext. Use per="session"',
                )
            session, needs_session = parameter_name, annotation is SessionContext
        elif not has_default:
            raise _bad_provider(
                tool,
                name,
                f"nothing gives its parameter {parameter_name!r}. Annotate it with Call, SessionContext or "
                "Annotated[…, Given(…)]",
            )
    return Provider(
        name=name,
        make=make,
        kind=kind,
        per=per,
        key=(function, per),
        call=call,
        session=session,
        needs_session=needs_session,
        given=tuple(parameters),
    )


def _read_kind(tool: str, name: str, function: Any) -> tuple[Callable[..., Any], ProviderKind]:
    """What to call, and how it makes the value. A generator function is turned into a context manager."""
    if not callable(function):
        raise _bad_provider(tool, name, "it is not a function")
    plain: Any = function
    inner: Any = inspect.unwrap(plain)
    # A function that is decorated with `contextmanager` returns a context manager already.
    is_decorated = inner is not plain
    if inspect.isasyncgenfunction(inner):
        return (plain if is_decorated else asynccontextmanager(plain)), ProviderKind.ASYNC_CONTEXT
    if inspect.isgeneratorfunction(inner):
        return (plain if is_decorated else contextmanager(plain)), ProviderKind.CONTEXT
    return plain, ProviderKind.COROUTINE if inspect.iscoroutinefunction(inner) else ProviderKind.FUNCTION


def _read_parameters(tool: str, name: str, function: Any) -> list[tuple[str, Any, bool]]:
    """The name, the annotation and whether it has a default, of each parameter that can be passed by keyword."""
    try:
        parameters = inspect.signature(function).parameters
        target: Any = function.__init__ if inspect.isclass(function) else inspect.unwrap(function)
        hints = read_type_hints(target) if parameters else {}
    except (AttributeError, NameError, SyntaxError, TypeError, ValueError) as error:
        raise _bad_provider(tool, name, f"its types cannot be read: {error}") from None
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        (parameter.name, hints.get(parameter.name), parameter.default is not inspect.Parameter.empty)
        for parameter in parameters.values()
        if parameter.kind in by_keyword
    ]


def _bad_provider(tool: str, name: str, problem: str) -> HoldfastError:
    return HoldfastError(codes.BAD_TOOL, f"{tool!r} cannot use the provider {name!r}: {problem}.")
