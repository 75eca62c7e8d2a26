"""The shell tool. It runs one command in the session's folders.

The command is confined, except in a direct session if a person or a permission rule allowed it.
"""

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from msgspec import Meta

from holdfast import __version__
from holdfast.builtin.call_facts import read_call_facts
from holdfast.builtin.files.editor_files import EditorFiles
from holdfast.builtin.files.open_path import open_path, open_working_folder
from holdfast.builtin.files.roots import PathSet, Roots
from holdfast.builtin.self_limited_tools import SELF_LIMITED_SECONDS
from holdfast.builtin.shell.run_command import run_command, shell_arguments
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.door import CommandResult, CommandRunner, Door, ShellCommand
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.meta_keys import KIND_KEY
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.model.trust import Trust
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.toolkit.authentication import EnvironmentAuthenticator
from holdfast.toolkit.call import Call
from holdfast.toolkit.operation import Annotations
from holdfast.toolkit.toolbox import Toolbox
from holdfast.wire.mcp.server import Service

MAX_SECONDS = 600
MAX_OUTPUT_BYTES = 30_000
_MAX_COMMAND_CHARS = 20_000
_MAX_CALLS = 4  # how many commands of one session run at a time
_CODES = (
    codes.BAD_PATH,
    codes.OUTSIDE_ROOTS,
    codes.DENIED,
    codes.FILE_CHANGED,
    codes.FILE_ERROR,
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
    """Returns what a confined command of this session may access."""
    direct_env: Mapping[str, str] = field(repr=False)
    """The environment of a command that runs outside of the sandbox."""
    confined_env: Mapping[str, str] = field(repr=False)
    """The environment of a confined command."""
    protected: tuple[str, ...] = ()
    """Holdfast's own folders: no command starts in them."""


def shell_service(context: SessionContext, door: Door | None, deps: ShellDeps) -> Service:
    """Return the in-process server with the shell tool of one session."""
    return shell_toolbox(context, door, deps).server(EnvironmentAuthenticator(context))


def shell_toolbox(context: SessionContext, door: Door | None, deps: ShellDeps) -> Toolbox:
    """Return the toolbox with the shell tool of one session."""
    box = Toolbox("shell", version=__version__)
    # The argument `timeout` limits how long a command runs. The call may also wait for other commands of the session.
    box.slow_after = box.deadline = SELF_LIMITED_SECONDS
    box.tool(
        title="Run a command",
        operation="command",
        codes=[code.name for code in _CODES],
        meta={KIND_KEY: "execute"},
        annotations=Annotations(destructive=True),
    )(_Shell(context, door, deps).run)
    return box


class _Shell:
    """The handler of one session's shell tool."""

    def __init__(self, context: SessionContext, door: Door | None, deps: ShellDeps) -> None:
        self._context = context
        self._door = door
        self._deps = deps
        folders = context.roots or (context.cwd,)
        self._roots = Roots.of(folders, PathSet.of(deps.protected))
        self._calls = asyncio.Semaphore(_MAX_CALLS)

    async def run(
        self,
        command: Annotated[
            str, Meta(min_length=1, max_length=_MAX_COMMAND_CHARS, description="For /bin/sh.")
        ],
        call: Call,
        cwd: Annotated[str, "The folder to run it in."] = ".",
        timeout: Annotated[int, Meta(ge=1, le=MAX_SECONDS, description="Seconds.")] = 120,
    ) -> dict[str, Any]:
        """Run one command and return its output. It gets no input. Processes that it leaves in the background are ended."""
        if "\0" in command:
            raise HoldfastError(codes.BAD_ARGUMENT, "The command contains a NUL character.")
        async with self._calls:
            opened = await run_with_file_timeout(self._open_folder, cwd, path=self._roots.folders[0])
            with opened as folder:
                shell_command = ShellCommand(
                    text=command, cwd=folder.path, seconds=timeout, output_bytes=MAX_OUTPUT_BYTES
                )
                is_confined = (
                    self._context.trust_level is Trust.SANDBOXED or not read_call_facts(call).is_confirmed
                )
                if is_confined:
                    result = await self._run_confined(shell_command)
                else:
                    result = await self._run_directly(shell_command, folder.descriptor)
        return _answer(result, timeout, is_confined=is_confined)

    async def _run_confined(self, command: ShellCommand) -> CommandResult:
        confinement = await self._deps.confine(self._context)
        spec = ProcessSpec(
            argv=shell_arguments(command.text),
            env=self._deps.confined_env,
            cwd=command.cwd,
            confinement=confinement,
        )
        with (
            self._deps.confined_folders.add_while_running(confinement) if confinement.roots else nullcontext()
        ):
            return await run_command(self._deps.keeper, spec, command)

    async def _run_directly(self, command: ShellCommand, folder_fd: int) -> CommandResult:
        """Run the command in a terminal of the editor, if the editor offers one that is safe to use; else in a process of this host."""
        door = self._door
        if door is not None and door.capabilities.terminal and isinstance(door, CommandRunner):
            editor = EditorFiles(door, self._context.trust_level, self._deps.confined_folders)
            if await editor.may_open(command.cwd):  # the editor opens the folder by its path
                return await door.run_command(replace(command, variables=tuple(self._deps.direct_env)))
        spec = ProcessSpec(
            argv=shell_arguments(command.text), env=self._deps.direct_env, cwd=command.cwd, cwd_fd=folder_fd
        )
        return await run_command(self._deps.keeper, spec, command)

    def _open_folder(self, cwd: str) -> "_OpenFolder":
        """Open the folder in which the command will run. Raises if it is not in one of the session's folders. Blocks."""
        try:
            with open_path(self._roots, cwd) as handle:
                return _OpenFolder(open_working_folder(handle), handle.real_path)
        except HoldfastError as error:
            if error.code is codes.NO_FILE or error.code is codes.NOT_A_FILE:
                raise HoldfastError(codes.BAD_PATH, f"There is no folder {cwd[:200]!r}.") from None
            raise


class _OpenFolder:
    """An open folder. The command starts in it, even if a confined server has replaced a part of its path by a link since."""

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path
        """The path, with all symbolic links followed, when it was opened."""
        # Closes the descriptor even if the caller was cancelled before it got this object.
        self._close = weakref.finalize(self, os.close, descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


def _answer(result: CommandResult, timeout: int, *, is_confined: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"exit_code": result.exit_code, "output": result.output}
    if result.timed_out:
        answer["timed_out"] = f"The command was ended after {timeout} s."
    if result.truncated:
        answer["truncated"] = True
    if is_confined:
        answer["confined"] = "The command ran without network, and could change only the session's folders."
    return answer
