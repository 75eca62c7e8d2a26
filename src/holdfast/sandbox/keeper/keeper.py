"""Start the local servers of one host, and end them all when the host closes.

The keeper process, whose supervisors end the servers if the host dies, is in `keeper_process.py`.
"""

import sys
from dataclasses import replace
from types import TracebackType
from typing import Self

from holdfast.model.process import ProcessSpec
from holdfast.model.search_path import with_absolute_search_path
from holdfast.sandbox.guard_watch import GuardWatch
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.client import KeeperClient
from holdfast.sandbox.keeper.process_groups import ProcessGroups
from holdfast.sandbox.keeper.spawn_request import direct_request
from holdfast.sandbox.sandbox import SandboxBackend
from holdfast.sandbox.start_confined import find_program_paths, start_confined, wait_for_cleanups


class Keeper:
    """Starts every local server of a host, direct or confined. Closing it ends the servers that still run."""

    def __init__(
        self, sandbox: SandboxBackend | None = None, *, starter: KeeperClient | ProcessGroups | None = None
    ) -> None:
        self._sandbox = sandbox
        self._guards = GuardWatch()
        self._starter = starter or (KeeperClient() if sys.platform == "linux" else ProcessGroups())

    async def __aenter__(self) -> Self:
        self._starter.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._starter.close()
        await wait_for_cleanups()
        self._guards.close()

    @property
    def pid(self) -> int | None:
        """The pid of the keeper process; None if it does not run, or on platforms without it."""
        return self._starter.pid

    async def program_paths(self, spec: ProcessSpec) -> tuple[str, ...]:
        """The paths outside of the server's roots that the sandbox would mount for its program; empty without a sandbox.

        Raise if there is no such program.
        """
        if self._sandbox is None:
            return ()
        return await find_program_paths(self._sandbox, _with_absolute_search_path(spec))

    async def spawn(self, spec: ProcessSpec) -> Child:
        """Start a server. If `spec` has a confinement, the server starts confined or not at all."""
        spec = _with_absolute_search_path(spec)
        if spec.confinement is None:
            return await self._starter.start(direct_request(spec))
        return await start_confined(self._starter, self._sandbox, spec, self._guards)


def _with_absolute_search_path(spec: ProcessSpec) -> ProcessSpec:
    """Remove empty and relative entries from the `PATH`: they would find programs in the working directory, which is not trusted."""
    env = with_absolute_search_path(spec.env)
    return spec if env is spec.env else replace(spec, env=env)
