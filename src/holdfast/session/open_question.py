"""A question to the doors of a session until it is answered, and how long it waits if no door can answer it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.model import codes
from holdfast.model.door import Door, DoorCapabilities
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.session.doors import AttachedDoor

log = logging.getLogger(__name__)

T = TypeVar("T")

_NONE_ATTACHED = "No terminal or editor that may answer is attached to this session."
_ALL_LEFT = "Every terminal and editor that was asked has left without answering."


class OpenQuestion(Generic[T]):
    """One question, and the doors that it was put to. If no door is left that could answer, the question waits for another door, then fails."""

    def __init__(
        self,
        *,
        can_answer: Callable[[DoorCapabilities], bool],
        ask: Callable[[Door], Awaitable[T]],
        after_seq: int,
        permission_wait: float,
    ) -> None:
        """A door is asked after it has shown the events up to the number `after_seq`.

        `permission_wait`, the setting `permission.wait`, is how many seconds the question waits while no door is asked.
        """
        self._can_answer = can_answer
        self._ask_door = ask
        self._after_seq = after_seq
        self._permission_wait = permission_wait
        self._asked: dict[AttachedDoor, asyncio.Task[T]] = {}
        self._error: HoldfastError | None = None
        self.asked_count = 0
        self.answered_by = ""
        """The name of the door whose answer counts."""
        self._give_up_timer: asyncio.TimerHandle | None = None
        self._answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def put_to(self, attached: "AttachedDoor") -> None:
        """Ask a door, if it can and may answer."""
        if attached.may_answer and self._can_answer(attached.door.capabilities):
            self.asked_count += 1
            task = asyncio.create_task(self._ask(attached))
            self._asked[attached] = task
            task.add_done_callback(partial(self._on_done, attached))

    def withdraw(self, attached: "AttachedDoor") -> None:
        """Stop asking a door."""
        task = self._asked.get(attached)
        if task is not None:
            task.cancel()

    async def withdraw_all(self) -> None:
        """Stop asking all doors, and wait until each has stopped."""
        if self._give_up_timer is not None:
            self._give_up_timer.cancel()
        tasks = [*self._asked.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def wait(self) -> T:
        self._start_or_stop_timer()
        return await self._answer

    async def _ask(self, attached: "AttachedDoor") -> T:
        await attached.wait_handled(self._after_seq)  # so that the user sees what the question is about
        return await self._ask_door(attached.door)

    def _on_done(self, attached: "AttachedDoor", task: "asyncio.Task[T]") -> None:
        self._asked.pop(attached, None)
        if task.cancelled():
            pass
        elif (error := task.exception()) is None:
            if not self._answer.done():
                self.answered_by = attached.door.capabilities.name or "another editor or terminal"
                self._answer.set_result(task.result())
        elif not isinstance(error, HoldfastError):
            log.error("a door failed to ask its user", exc_info=error)
            failed = f"Asking failed with {type(error).__name__}; the log has the traceback."
            self._error = HoldfastError(codes.NO_ANSWER, failed)
        elif error.code is not codes.CONNECTION_CLOSED:
            self._error = error
        self._start_or_stop_timer()

    def _start_or_stop_timer(self) -> None:
        """If no door is being asked, start the timer after which the question fails. Otherwise stop it."""
        if self._give_up_timer is not None:
            self._give_up_timer.cancel()
            self._give_up_timer = None
        if not self._asked and not self._answer.done():
            self._give_up_timer = asyncio.get_running_loop().call_later(self._permission_wait, self._fail)

    def _fail(self) -> None:
        if not self._asked and not self._answer.done():
            message = _ALL_LEFT if self.asked_count else _NONE_ATTACHED
            self._answer.set_exception(self._error or HoldfastError(codes.NO_ANSWER, message))
