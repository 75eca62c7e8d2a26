"""The shell tool: one command in the session's folders, confined unless a person allowed this very command."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from msgspec import Meta

from holdfast import __version__
from holdfast.builtin.call_facts import read_call_facts
from holdfast.builtin.files.roots import PathSet, Roots, outside_error
from holdfast.builtin.shell.run_command import run_command, shell_arguments
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.door import CommandResult, CommandRunner, Door, ShellCommand
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.mounts import is_within
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.model.real_path import StepBudget, follow_links
from holdfast.model.trust import Trust
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.toolkit.authentication import EnvironmentAuthenticator
from holdfast.toolkit.call import Call
from holdfast.toolkit.operation import Annotations
from holdfast.toolkit.toolbox import Toolbox
from holdfast.wire.mcp.server import Service

KIND = "dev.holdfast/kind"
MAX_SECONDS = 600
MAX_OUTPUT_BYTES = 30_000
_MAX_COMMAND = 20_000
_MAX_CALLS = 4  # how many commands of one session run at a time
_CODES = (
    codes.BAD_PATH,
    codes.OUTSIDE_ROOTS,
    codes.DENIED,
    codes.NO_SANDBOX,
    codes.SPAWN_FAILED,
    codes.EDITOR_REFUSED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellDeps:
    """What the shell of every session needs from the host."""

    keeper: Keeper
    confined_folders: ConfinedFolders
    confine: Callable[[SessionContext], Awaitable[Confinement]]
    """What a confined command of this session may access."""
    direct_env: Mapping[str, str] = field(repr=False)
    confined_env: Mapping[str, str] = field(repr=False)
    protected: tuple[str, ...] = ()
    """Holdfast's own files: no command starts in them."""


def shell_service(context: SessionContext, door: Door | None, deps: ShellDeps) -> Service:
    """Return the in-process server with the shell tool of one session."""
    return shell_toolbox(context, door, deps).server(EnvironmentAuthenticator(context))


def shell_toolbox(context: SessionContext, door: Door | None, deps: ShellDeps) -> Toolbox:
    """Return the shell tool of one session."""
    box = Toolbox("shell", version=__version__)
    box.slow_after = MAX_SECONDS
    box.tool(
        title="Run a command",
        operation="command",
        codes=[code.name for code in _CODES],
        meta={KIND: "execute"},
        annotations=Annotations(destructive=True),
    )(_Shell(context, door, deps).run)
    return box


class _Shell:
    def __init__(self, context: SessionContext, door: Door | None, deps: ShellDeps) -> None:
        self._context = context
        self._door = door
        self._deps = deps
        folders = context.roots or (context.cwd,)
        self._roots = Roots.of(folders, PathSet.of(deps.protected))
        self._calls = asyncio.Semaphore(_MAX_CALLS)

    async def run(
        self,
        command: Annotated[str, Meta(min_length=1, max_length=_MAX_COMMAND, description="For /bin/sh.")],
        call: Call,
        cwd: Annotated[str, "The folder to run it in."] = ".",
        timeout: Annotated[int, Meta(ge=1, le=MAX_SECONDS, description="Seconds.")] = 120,
    ) -> dict[str, Any]:
        """Run one command and return its output. It gets no input, and nothing of it keeps running."""
        if "\0" in command:
            raise HoldfastError(codes.BAD_ARGUMENT, "The command contains a NUL character.")
        async with self._calls:
            folder = await run_with_file_timeout(self._folder, cwd, path=self._roots.folders[0])
            job = ShellCommand(text=command, cwd=folder, seconds=timeout, output_bytes=MAX_OUTPUT_BYTES)
            is_confined = (
                self._context.trust_level is Trust.SANDBOXED or not read_call_facts(call).is_confirmed
            )
            result = await (self._run_confined(job) if is_confined else self._run_directly(job))
        return _answer(result, timeout, is_confined=is_confined)

    async def _run_confined(self, command: ShellCommand) -> CommandResult:
        confinement = await self._deps.confine(self._context)
        spec = ProcessSpec(
            argv=shell_arguments(command.text),
            env=self._deps.confined_env,
            cwd=command.cwd,
            confinement=confinement,
        )
        with self._deps.confined_folders.running(confinement) if confinement.roots else nullcontext():
            return await run_command(self._deps.keeper, spec, command)

    async def _run_directly(self, command: ShellCommand) -> CommandResult:
        door = self._door
        if door is not None and door.capabilities.terminal and isinstance(door, CommandRunner):
            return await door.run_command(replace(command, variables=tuple(self._deps.direct_env)))
        spec = ProcessSpec(argv=shell_arguments(command.text), env=self._deps.direct_env, cwd=command.cwd)
        return await run_command(self._deps.keeper, spec, command)

    def _folder(self, cwd: str) -> str:
        """The real path of the folder to run in. Raise if it is not in one of the session's folders. Blocks."""
        rooted = self._roots.resolve(cwd)
        path = "/".join((rooted.root, *rooted.steps))
        try:
            real = follow_links(path, StepBudget()).real
        except OSError:
            real = None
        if real is None or not any(is_within(real, root) for root in self._roots.folders):
            raise outside_error(cwd, self._roots.folders)
        if self._roots.protected.contains(real):
            raise HoldfastError(codes.DENIED, f"{cwd!r} belongs to Holdfast. No command can run there.")
        return real


def _answer(result: CommandResult, timeout: int, *, is_confined: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"exit_code": result.exit_code, "output": result.output}
    if result.timed_out:
        answer["timed_out"] = f"It was ended after {timeout} s."
    if result.truncated:
        answer["truncated"] = True
    if is_confined:
        answer["confined"] = "It ran without network, and could change only the session's folders."
    return answer
