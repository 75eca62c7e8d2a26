"""A base class for objects that can be awaited like a coroutine, or used in another way, such as in an `async with` block."""

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class CoroutineWrapper(Coroutine[Any, Any, T]):
    """Wraps a coroutine: `await` it, or give it to `asyncio.create_task`. A subclass adds the other way to use it."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: BaseException | object = None, tb: TracebackType | None = None) -> Any:
        return self._coroutine.throw(typ, val, tb)  # type: ignore[arg-type]

    def close(self) -> None:
        self._coroutine.close()
