"""Which tools one server of a session offers, looked at again when it says that they have changed."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from holdfast.model.errors import HoldfastError
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.server import ServerSpec
from holdfast.resolve.pins import Sifted
from holdfast.store.database import passes

log = logging.getLogger(__name__)

_SHORTEST_PAUSE = 0.2
_RETRY_SECONDS = 2.0
_SHARE = 10  # a server that keeps changing its tools gets this part of the time for it, and no more

Look: TypeAlias = Callable[[ServerSpec], Awaitable[Sifted]]
Told: TypeAlias = Callable[[], Awaitable[None]]


class Listing:
    """One server's tools, kept up to date by a task of its own until it is closed."""

    def __init__(self, spec: ServerSpec, look: Look, told: Told) -> None:
        self.spec = spec
        self.sifted: Sifted | None = None
        """What it offers; None until it was looked at, or when it could not be."""
        self.refusal: Refusal | None = None
        self._said = ""
        """Why it could not be looked at again, as it was logged last."""
        self._look = look
        self._told = told
        self._stale = asyncio.Event()
        self._fresh = asyncio.Event()
        self._task = asyncio.create_task(self._own(), name=f"tools of {spec.name}")

    @property
    def starting(self) -> bool:
        """Whether it has not been looked at yet."""
        return self.sifted is None and self.refusal is None

    def changed(self) -> None:
        """The server says that its tools are not what they were."""
        self._fresh.clear()
        self._stale.set()

    async def ready(self) -> None:
        """Wait until it has been looked at since the last change; what it says meanwhile delays nobody."""
        await self._fresh.wait()

    async def close(self) -> None:
        """Stop looking."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _own(self) -> None:
        try:
            await self._once()
            pause = _SHORTEST_PAUSE  # the first look waited for the server to start, and is no measure
            while True:
                await self._told()
                self._fresh.set()
                if self._stale.is_set():
                    self._fresh.clear()
                await asyncio.sleep(pause)
                await self._stale.wait()
                self._stale.clear()
                began = time.monotonic()
                await self._once()
                pause = max(_SHORTEST_PAUSE, _SHARE * (time.monotonic() - began))
        finally:
            self._fresh.set()

    async def _once(self) -> None:
        try:
            self.sifted, self.refusal = await self._look(self.spec), None
        except HoldfastError as error:
            reason = error.message
            if passes(error):  # what a full disk kept from being stored is looked at again by itself
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._stale.set)
        except Exception:
            log.exception("tools not listed", extra={"server": self.spec.name})
            reason = "Its tools could not be listed: an unexpected error, which the log tells about."
        else:
            self._said = ""
            return
        if self.sifted is not None:  # what it was known to offer stands until it says something else
            if reason != self._said:
                log.warning("tools not listed again", extra={"server": self.spec.name, "reason": reason})
            self._said = reason
        else:
            self.refusal = Refusal(server=self.spec.name, stage=Stage.CONNECT, reason=reason)
