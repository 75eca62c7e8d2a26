"""A variant of `asynccontextmanager` whose errors say what to write after a mistake, such as a missing `async`."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class AsyncBlock(AbstractAsyncContextManager[T], Generic[T]):
    """An async context manager. If it is awaited, entered without `async`, or used without being entered, the error says what to write."""

    def __init__(self, manager: AbstractAsyncContextManager[T], usage: str) -> None:
        self._manager = manager
        self._usage = usage
        self._was_entered = False

    def __repr__(self) -> str:
        return f"<{'entered' if self._was_entered else 'not open'}: {self._usage}>"

    async def __aenter__(self) -> T:
        if self._was_entered:
            raise TypeError(f"This block can be entered once. Write again: {self._usage}")
        self._was_entered = True
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._manager.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # a type checker finds these mistakes by itself

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"`{name}` can be used once the block is entered. Write: {self._usage}")

        def __await__(self) -> NoReturn:
            raise TypeError(f"This cannot be awaited. Write: {self._usage}")

        def __enter__(self) -> NoReturn:
            raise TypeError(f"This block is async. Write: {self._usage}")

        def __exit__(self, *error: object) -> None:
            """Never called. Python looks it up before it calls `__enter__`."""


def async_block(usage: str) -> Callable[[Callable[P, AsyncIterator[T]]], Callable[P, AsyncBlock[T]]]:
    """Like `asynccontextmanager`. `usage` is what to write: `async with host.session(…) as session:`."""

    def decorate(function: Callable[P, AsyncIterator[T]]) -> Callable[P, AsyncBlock[T]]:
        make: Callable[..., Any] = asynccontextmanager(function)

        @wraps(function)
        def open_block(*args: P.args, **kwargs: P.kwargs) -> AsyncBlock[T]:
            return AsyncBlock(make(*args, **kwargs), usage)

        return open_block

    return decorate
