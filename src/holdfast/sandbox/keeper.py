"""Starts servers, and sees to it that nothing of them outlives the host."""

import sys
from types import TracebackType
from typing import Self

from holdfast.model.launch import Launch
from holdfast.sandbox.child import Child
from holdfast.sandbox.confined import start_confined
from holdfast.sandbox.groups import Groups
from holdfast.sandbox.program import direct
from holdfast.sandbox.sandbox import Sandbox
from holdfast.sandbox.wards import Wards


class Keeper:
    """One per host: every server is started here, direct or confined, and ended at the latest when it closes."""

    def __init__(self, sandbox: Sandbox | None = None, *, holds: Wards | Groups | None = None) -> None:
        self._sandbox = sandbox
        self._holds = holds or (Wards() if sys.platform == "linux" else Groups())

    async def __aenter__(self) -> Self:
        self._holds.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._holds.close()

    @property
    def pid(self) -> int | None:
        """The process that forks the wardens; None where there is none."""
        return self._holds.pid

    async def spawn(self, launch: Launch) -> Child:
        """Start a server. What is to be confined starts confined, or not at all."""
        if launch.confinement is None:
            return await self._holds.start(direct(launch))
        return await start_confined(self._holds, self._sandbox, launch)
