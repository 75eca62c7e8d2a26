"""Run commands of podman or docker."""

import asyncio
import os
import shutil
import subprocess

from holdfast.sandbox.own_code import system_path

_SECONDS = 60.0
_BLOCKING_SECONDS = 8.0  # less than `_PREPARE_SECONDS` in `start_confined.py`
_ENGINE_ENV = (
    "HOME",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DOCKER_HOST",
    "CONTAINER_HOST",
)


class Engine:
    """A container engine: the program, and the options that each of its commands gets."""

    def __init__(self, name: str, options: tuple[str, ...] = (), search_path: str | None = None) -> None:
        """`search_path` is where to find the program: by default, the system's folders in the `PATH`."""
        self.name, self.options = name, options
        self._search_path = system_path() if search_path is None else search_path

    def find(self) -> str:
        """The path of the program; empty if it is missing."""
        return shutil.which(self.name, path=self._search_path) or ""

    @property
    def missing_message(self) -> str:
        return f"{self.name} is missing. Install it, or remove sandbox.engine from the settings to use bubblewrap."

    def environment(self) -> dict[str, str]:
        """The engine's environment. The engine looks in its `PATH` for the programs that it executes."""
        kept = {key: os.environ[key] for key in _ENGINE_ENV if key in os.environ}
        return {**kept, "PATH": self._search_path}

    def command(self, *arguments: str) -> tuple[str, ...]:
        """The argument list that runs a command of the engine."""
        return (self.find(), *self.options, *arguments)

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command. Return its exit code, and its standard output and error. Raises TimeoutError."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=self.environment(),
        )  # fmt: skip
        try:
            async with asyncio.timeout(_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise TimeoutError(f"{self.name} did not answer within {_SECONDS:g} seconds") from None
        return process.returncode or 0, output.decode(errors="replace").strip()

    def run_blocking(self, *arguments: str) -> tuple[int, str]:
        """Like `run`, in the calling thread, with a shorter limit. Raises TimeoutError."""
        try:
            done = subprocess.run(
                self.command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=self.environment(), timeout=_BLOCKING_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} did not answer within {_BLOCKING_SECONDS:g} seconds") from None
        return done.returncode, done.stdout.decode(errors="replace").strip()
