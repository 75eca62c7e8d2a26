"""Starts processes of servers before a session needs them.

When such a process starts, it belongs to no session. Later, at most one session uses it, and the process gets the session context
with each request.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.connect.script_files import ScriptFiles, scripts_in_command
from holdfast.connect.start_folder import start_folder
from holdfast.model.context import CONTEXT_VARIABLES, SHARED_VARIABLE
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.model.server import Lifetime, ServerSpec, Stdio
from holdfast.model.visible_text import to_line
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper

log = logging.getLogger(__name__)

_MAX_SPECS = 32
_END_SECONDS = 1.0
_Key = tuple[tuple[str, ...], tuple[tuple[str, str], ...], str]
"""The command, variables and folder that a process is started with. A session may use only a process with the same ones."""


@dataclass(slots=True, eq=False)
class WarmServer:
    """A process that waits for a session."""

    child: Child
    scripts: ScriptFiles
    folder_stack: AsyncExitStack
    """On close, removes the empty folder of the process, if it was started in one."""
    is_adopted: bool = False
    """Whether a connection uses the process, and will end it."""

    async def adopt(self, process: ProcessSpec) -> Child:
        """Mark this process as adopted, and return it. A connection calls this in place of `Keeper.spawn`."""
        self.is_adopted = True
        return self.child

    @asynccontextmanager
    async def hold_folder(self) -> AsyncIterator[str]:
        """Keep the process's folder until exit. A connection uses this in place of `start_folder`. The yielded path is empty: nothing uses it."""
        async with self.folder_stack:
            yield ""


@dataclass(slots=True, eq=False)
class _IdleServers:
    """The waiting processes of one key."""

    servers: list[WarmServer] = field(default_factory=list[WarmServer])
    filling: asyncio.Task[None] | None = None


class WarmPool:
    """Starts servers in advance, and ends those that no session took."""

    def __init__(self, keeper: Keeper, empty_folders: Path) -> None:
        self._keeper = keeper
        self._empty_folders = empty_folders
        self._idle: dict[_Key, _IdleServers] = {}  # in the order of their last use
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        for key in [*self._idle]:
            self._drop(key)
        if self._ending:
            await asyncio.wait(self._ending)

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(server.child.pid for idle in self._idle.values() for server in idle.servers)

    def take(self, spec: ServerSpec, session_folder: str) -> WarmServer | None:
        """A process for one session, or None if none is waiting. The caller must connect to it or pass it to `end_unused`."""
        if not spec.warm or not (idle := self._idle.get(_key(spec, session_folder))):
            return None
        while idle.servers:
            server = idle.servers.pop(0)
            if not server.scripts.first_changed():
                return server
            self.end_unused(server)
        return None

    def fill(self, spec: ServerSpec, session_folder: str) -> None:
        """Start as many processes as the server's entry asks for, in the background."""
        if self._is_closed or not spec.warm:
            return
        key = _key(spec, session_folder)
        idle = self._idle.pop(key, None) or _IdleServers()
        self._idle[key] = idle
        while len(self._idle) > _MAX_SPECS:
            self._drop(next(iter(self._idle)))
        if idle.filling is None and len(idle.servers) < spec.warm:
            idle.filling = asyncio.create_task(self._fill(idle, spec, session_folder))

    async def wait_filled(self) -> None:
        """Wait until all processes that were asked for have been started, or could not be started."""
        filling = [idle.filling for idle in self._idle.values() if idle.filling is not None]
        if filling:
            await asyncio.wait(filling)

    async def _fill(self, idle: _IdleServers, spec: ServerSpec, session_folder: str) -> None:
        try:
            while len(idle.servers) < spec.warm:
                server = await self._start(spec, session_folder)
                idle.servers.append(server)
                server.child.on_gone(lambda server=server: self._on_gone(idle, server))
                if server not in idle.servers:  # the process ended immediately, and so would the next
                    return
        except HoldfastError as error:
            extra = {"server": spec.name, "reason": error.message}
            log.warning("%s not started in advance: %s", spec.name, to_line(error.message), extra=extra)
        finally:
            idle.filling = None

    async def _start(self, spec: ServerSpec, session_folder: str) -> WarmServer:
        """Start one process as for a session in this folder, but without a session context."""
        stdio = spec.transport
        assert isinstance(stdio, Stdio)
        scripts = scripts_in_command(stdio, session_folder)
        async with AsyncExitStack() as stack:
            folder = await stack.enter_async_context(
                start_folder(
                    stdio,
                    session_folder=session_folder,
                    is_confined=False,
                    empty_folders=self._empty_folders,
                )
            )
            # The variable tells the server that each request names its session.
            env = {**without_context(stdio.env), SHARED_VARIABLE: "1"}
            argv = (stdio.command, *stdio.args)
            child = await self._keeper.spawn(ProcessSpec(argv=argv, env=env, cwd=folder or str(Path.home())))
            return WarmServer(child, scripts, stack.pop_all())
        raise AssertionError  # never reached: the stack suppresses no exception

    def _on_gone(self, idle: _IdleServers, server: WarmServer) -> None:
        if server in idle.servers:
            idle.servers.remove(server)
            self.end_unused(server)

    def _drop(self, key: _Key) -> None:
        idle = self._idle.pop(key)
        if idle.filling is not None:
            idle.filling.cancel()
            self._ending.add(idle.filling)
            idle.filling.add_done_callback(self._ending.discard)
        while idle.servers:
            self.end_unused(idle.servers.pop())

    def end_unused(self, server: WarmServer) -> None:
        """End a process, unless a connection uses it."""
        if server.is_adopted:
            return
        task = asyncio.create_task(_end(server))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _end(server: WarmServer) -> None:
    server.child.close()
    try:
        await server.child.end(_END_SECONDS)
    finally:
        await server.folder_stack.aclose()


def can_start_in_advance(spec: ServerSpec) -> bool:
    """Whether the server can be started in advance: a local server that is not confined, and that sessions do not share."""
    return (
        spec.warm > 0
        and spec.confinement is None
        and spec.lifetime is not Lifetime.HOST
        and isinstance(spec.transport, Stdio)
    )


def without_context(env: Mapping[str, str]) -> dict[str, str]:
    """The variables, without those of the session context."""
    return {name: value for name, value in env.items() if name.upper() not in CONTEXT_VARIABLES}


def _key(spec: ServerSpec, session_folder: str) -> _Key:
    stdio = spec.transport
    assert isinstance(stdio, Stdio)
    folder = "" if stdio.has_empty_folder or stdio.cwd.startswith("/") else session_folder
    env = tuple(sorted(without_context(stdio.env).items()))
    return (stdio.command, *stdio.args), env, f"{stdio.cwd}\0{folder}"
