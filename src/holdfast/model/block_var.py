"""A context variable whose value is set for the length of a block."""

import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class BlockVar(Generic[T]):
    """A context variable that a block sets: `with var.use(value):`. After the block, it has its previous value.

    If an async generator is not run to its end, the event loop closes it later, in another task. So a block in a generator may end in
    another task than it began in, and a block that began after it may still be open. The task that ends a block cannot reset the variable
    in the task where the block began. Therefore a block notes that it has ended, and `get` skips it in the task where it began. Tasks that
    were started inside the block keep its value.
    """

    def __init__(self, name: str) -> None:
        self._var: ContextVar[_Block[T] | None] = ContextVar(name, default=None)

    def get(self) -> T | None:
        """The value of the innermost block that this code is in, or None."""
        block = self._var.get()
        while block is not None and block.has_ended and block.task is _current_task():
            block = block.outer
        return None if block is None else block.value

    def use(self, value: T) -> "_Block[T]":
        return _Block(self._var, value)


class _Block(Generic[T]):  # a class, because a generator would take longer, for every call of a tool
    __slots__ = ("_var", "has_ended", "outer", "task", "value")

    def __init__(self, var: "ContextVar[_Block[T] | None]", value: T) -> None:
        self._var = var
        self.value = value
        self.outer: _Block[T] | None = None
        self.task: Any = None
        self.has_ended = False

    def __enter__(self) -> None:
        self.outer = self._var.get()
        self.task = _current_task()
        self._var.set(self)

    def __exit__(self, *_: object) -> None:
        self.has_ended = True
        if self._var.get() is self:
            self._var.set(self.outer)


def _current_task() -> "asyncio.Task[Any] | None":
    # Not imported here: a process that only verifies tokens does not need it.
    asyncio_module = sys.modules.get("asyncio")
    if asyncio_module is None:
        return None
    try:
        return asyncio_module.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
