"""The tools of one of a session's servers, listed again when they change.

A lazy server is not started to list its tools: until it is needed, its tools are those that it listed last.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.light_event import LightEvent
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.server import ServerSpec
from holdfast.model.visible_text import to_line
from holdfast.resolve.screen_tools import ScreenedTools
from holdfast.store.errors import is_transient

log = logging.getLogger(__name__)

_MIN_PAUSE_SECONDS = 0.2  # between two listings
_RETRY_SECONDS = 2.0  # the pause after a transient failure
_PAUSE_FACTOR = 10  # after a listing, wait this many times as long as it took

ListTools: TypeAlias = Callable[[ServerSpec, bool], Awaitable[ScreenedTools]]
"""Lists and screens a server's tools. The second argument says whether to start the server."""
OnListed: TypeAlias = Callable[[ServerSpec], Awaitable[None]]
Recall: TypeAlias = Callable[[ServerSpec], Awaitable[ScreenedTools | None]]
"""Returns the tools that a lazy server listed last, if they are known."""


class ServerTools:
    """One server's tools. A task keeps the list up to date until `cancel`."""

    def __init__(self, spec: ServerSpec, list_tools: ListTools, on_listed: OnListed, recall: Recall) -> None:
        self.spec = spec
        self.screened: ScreenedTools | None = None
        """The tools as last listed and screened. None before the first listing has succeeded, unless a lazy server's last list is known; None if
        the first listing failed."""
        self.is_not_started = spec.is_lazy
        """Whether the server is lazy, and nothing has needed it yet."""
        self.tool_count = 0
        """How many tools the server has listed, including those that are withheld."""
        self.start_seconds: float | None = None
        """How long the first listing took, including the server's start; None until it has ended."""
        self.refusal: Refusal | None = None
        self.needs_login = False
        self._last_logged = ""
        """The last reason that was logged, so that a repeated failure is logged once."""
        self._list_tools = list_tools
        self._on_listed = on_listed
        self._recall = recall
        self._was_listed = False
        self._needed = LightEvent()
        self._relist_requested = LightEvent()
        self._up_to_date = LightEvent()
        self._is_cancelled = False
        self._task = asyncio.create_task(self._run(), name=f"tools of {spec.name}")

    @property
    def is_starting(self) -> bool:
        """True until the first listing has ended. False for a lazy server that was not started."""
        return not self.is_not_started and not self._was_listed

    def start(self) -> None:
        """Start a lazy server, and list its tools."""
        if self.is_not_started and not self._is_cancelled:
            self.is_not_started = False
            self._up_to_date.clear()
            self._needed.set()

    def mark_changed(self) -> None:
        """List the tools again soon. A lazy server that was not started lists its tools when it is first needed."""
        if not self._is_cancelled and not self.is_not_started:
            self._up_to_date.clear()
            self._relist_requested.set()

    async def wait_ready(self) -> None:
        """Wait until the running or requested listing has ended. Later changes do not prolong the wait."""
        await self._up_to_date.wait()

    def cancel(self) -> None:
        """Stop listing. `wait_cancelled` waits until the task has ended."""
        if not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()
            self._up_to_date.set()  # the task does this when it ends, unless it never began

    async def wait_cancelled(self) -> None:
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            if self.is_not_started:
                await self._wait_until_needed()
            await self._list_once()
            took = 0.0  # the first listing includes the server's start, so its duration does not count
            while True:
                began = time.monotonic()
                await self._on_listed(self.spec)
                took += time.monotonic() - began
                self._up_to_date.set()
                if self._relist_requested.is_set():  # the tools have changed during the listing
                    self._up_to_date.clear()
                await asyncio.sleep(max(_MIN_PAUSE_SECONDS, _PAUSE_FACTOR * took))
                await self._relist_requested.wait()
                self._relist_requested.clear()
                began = time.monotonic()
                await self._list_once()
                took = time.monotonic() - began
        finally:
            self._up_to_date.set()

    async def _wait_until_needed(self) -> None:
        """Offer the tools that the server listed last, until `start` is called."""
        try:
            self.screened = await self._recall(self.spec)
        except HoldfastError as error:
            extra = {"server": self.spec.name, "reason": error.message}
            log.warning(
                "could not find the tools that %s listed last: %s", self.spec.name, error.message, extra=extra
            )
        if self.screened is not None:
            await self._on_listed(self.spec)
        if self.is_not_started:
            self._up_to_date.set()
        await self._needed.wait()

    async def _list_once(self) -> None:
        """List the tools, and store the result: the tools, or the refusal of the server. If an update fails, the last list stays."""
        is_first, began = not self._was_listed, time.monotonic()
        try:
            self.screened, self.refusal = await self._list_tools(self.spec, is_first), None
            self.needs_login = False
        except HoldfastError as error:
            reason, has_ended = error.message, error.code is codes.CONNECTION_CLOSED
            self.needs_login = error.code is codes.LOGIN_NEEDED
            if is_transient(error):  # on a full disk, for example: try again without waiting for a change
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._relist_requested.set)
        except Exception:
            log.exception("could not list the tools of %s", self.spec.name, extra={"server": self.spec.name})
            reason = "Its tools could not be listed because of an unexpected error. See the log."
            has_ended = False
        else:
            self._last_logged = ""
            return
        finally:
            self._was_listed = True
            if is_first:
                self.start_seconds = round(time.monotonic() - began, 4)
        if self.screened is not None and not is_first:  # the tools of the last successful listing stay
            if reason != self._last_logged:
                # If the server has ended, a call reports that.
                log.log(
                    logging.DEBUG if has_ended else logging.WARNING,
                    "could not update the tools of %s; the last list stays in use: %s",
                    self.spec.name,
                    to_line(reason),
                    extra={"server": self.spec.name, "reason": reason},
                )
            self._last_logged = reason
        else:
            if self.spec.is_lazy:  # the host logs the refusals of servers that are not lazy
                extra = {"server": self.spec.name, "reason": reason}
                log.warning("server refused: %s: %s", to_line(self.spec.name), to_line(reason), extra=extra)
            self.screened = None
            self.refusal = Refusal(server=self.spec.name, stage=Stage.CONNECT, reason=reason)
