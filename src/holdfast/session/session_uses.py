"""The callers that use a session: those that opened it, and those that joined it."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from holdfast.connect.scope import Scope, enter_scope


class SessionUse:
    """One caller's use of a session, until the end of its `async with` block."""

    def __init__(self, on_end: Callable[[], object] | None) -> None:
        self.task: asyncio.Task[Any] | None = asyncio.current_task()
        self.is_in_block = False
        self._on_end = on_end
        self._block = ExitStack()

    @property
    def is_left_open(self) -> bool:
        """Whether the task that began the use is done without having entered a block."""
        return not self.is_in_block and (self.task is None or self.task.done())

    def enter(self, scope: Scope) -> None:
        self.is_in_block = True
        self._block.enter_context(enter_scope(scope))

    def leave_block(self) -> None:
        self._block.close()

    def call_on_end(self) -> None:
        """Call `on_end`, if there is one. See `SessionUses.add`."""
        if self._on_end is not None:
            self._on_end()


class SessionUses:
    """The callers that use one session now."""

    def __init__(self) -> None:
        self._uses: list[SessionUse] = []

    def add(self, on_end: Callable[[], object] | None = None) -> SessionUse:
        """Add a use by the current task. `on_end` is called when it ends while the session stays open for others."""
        self._drop_left_open()
        use = SessionUse(on_end)
        self._uses.append(use)
        return use

    def _drop_left_open(self) -> None:
        """Remove all but one of the uses that were left open, so that the list does not grow.

        The one that stays keeps the session open for these callers when the blocks of others end.
        """
        without_block = [use for use in self._uses if use.is_left_open]
        for use in without_block[1:]:
            self._uses.remove(use)

    def begin_block(self) -> SessionUse:
        """The use whose block begins, if possible that of the current task. If every use is in a block, a new one."""
        return self._find(is_in_block=False) or self.add()

    def end_block(self) -> SessionUse | None:
        """The use whose block ends; None if no use is in a block."""
        return self._find(is_in_block=True)

    def remove(self, use: SessionUse) -> bool:
        """Remove a use that has ended. Return whether others are left."""
        if use in self._uses:
            self._uses.remove(use)
        return bool(self._uses)

    def _find(self, *, is_in_block: bool) -> SessionUse | None:
        """The latest such use of the current task, or else of any task."""
        matching = [use for use in self._uses if use.is_in_block is is_in_block]
        own = [use for use in matching if use.task is asyncio.current_task()]
        return (own or matching or [None])[-1]
