"""An event loop behind the terminal: the main thread waits for keys, and everything else happens here."""

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.session.turn import APOLOGY

log = logging.getLogger(__name__)

_GLANCE = 0.5


@dataclass(frozen=True, slots=True)
class Question:
    """Something only the person can say, and what it is about; whoever asks waits for `answer`."""

    text: str
    about: str
    answer: Callable[[str | None], None]


@dataclass(frozen=True, slots=True)
class Ready:
    """The session is open."""


@dataclass(frozen=True, slots=True)
class TurnOver:
    """The turn has ended, all of it shown; with the reason when it could not be taken or kept."""

    failure: HoldfastError | None = None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The person pressed Ctrl-C while nothing was asked."""


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing more will happen behind; with the reason when that is a failure."""

    failure: BaseException | None


News: TypeAlias = Question | Ready | TurnOver | Interrupt | Over


class Behind:
    """Runs one coroutine in a loop in a thread of its own, and passes news of it to the main thread."""

    def __init__(self, life: Callable[["Behind"], Coroutine[Any, Any, None]]) -> None:
        self._life = life
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast chat")
        self._failure: BaseException | None = None
        self.leaving = asyncio.Event()
        """Set when the person leaves."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.do(self.leaving.set)
        self._thread.join()
        self._loop.close()
        if error is None and self._failure is not None:
            raise self._failure

    # In the main thread

    def wait(self) -> News:
        """The next news. A signal that comes right before a wait does not end it, so no wait is long."""
        while True:
            try:
                return self._news.get(timeout=_GLANCE)
            except queue.Empty:
                continue

    def do(self, action: Callable[[], object]) -> None:
        """Do something there."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)

    def start(self, work: Callable[[], Awaitable[object]]) -> None:
        """Begin a turn; its end is news, however it ends."""

        async def turn() -> None:
            failure: HoldfastError | None = None
            try:
                await work()
            except HoldfastError as error:
                failure = error
            except Exception as error:
                log.error("prompt failed", extra={"error": repr(error)})
                log.debug("prompt failed", exc_info=True)
                failure = HoldfastError(codes.INTERNAL_ERROR, APOLOGY)
            finally:
                self.tell(TurnOver(failure))

        tasks: set[asyncio.Task[None]] = set()

        def begin() -> None:
            task = self._loop.create_task(turn())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        self.do(begin)

    # Behind

    def tell(self, news: News) -> None:
        """Tell the main thread."""
        self._news.put(news)

    async def ask(self, text: str, about: str = "") -> str | None:
        """Have the person asked, under what it is about; None when nobody answers."""
        answered: asyncio.Future[str | None] = self._loop.create_future()

        def settle(answer: str | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        self.tell(Question(text, about, lambda answer: self.do(lambda: settle(answer))))
        return await answered

    def _run(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._life(self))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        except BaseException as error:  # the main thread raises it
            self._failure = error
        finally:
            asyncio.set_event_loop(None)
            self.tell(Over(self._failure))
