"""Install a package: the command of each package manager, and the wait for its end."""

import asyncio
import os
import re
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from holdfast.host.package_record import MAX_BYTES, is_too_large
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import is_within
from holdfast.model.real_path import real_path
from holdfast.model.visible_text import strip_invisible
from holdfast.model.worker_threads import WorkerThreads
from holdfast.resolve.package_runner import PackageCommand, Runner
from holdfast.sandbox.keeper.child import Child

FETCH_SECONDS = 300.0
_CHECK_SECONDS = 1.0  # how often the size is checked
_OUTPUT_SECONDS = 5.0  # how long the output may stay open after the command has ended
_KEPT_BYTES = 2000  # how much of the end of the output is kept, to be shown in an error
_PYTHON = re.compile(r"python[\d.]*t?")
_THREADS = WorkerThreads("package-size", threads=2)


def install_command(command: PackageCommand, folder: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command that installs the packages into a folder, and its environment variables. It runs no code of the packages."""
    packages = command.packages
    match command.runner:
        case Runner.NPX:
            quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
            return ("npm", "install", "--prefix", folder, "--ignore-scripts", *quiet, *packages), {}
        case Runner.BUNX:
            return ("bun", "add", "--cwd", folder, "--ignore-scripts", *packages), {}
        case Runner.UVX:
            more = tuple(word for package in packages[1:] for word in ("--with", package))
            folders = {"UV_TOOL_DIR": f"{folder}/tools", "UV_TOOL_BIN_DIR": f"{folder}/bin"}
            options = {"UV_CACHE_DIR": "/tmp/uv", "UV_LINK_MODE": "copy", "UV_PYTHON_DOWNLOADS": "never"}
            return ("uv", "tool", "install", "--quiet", "--no-build", packages[0], *more), folders | options
        case Runner.PIPX:
            folders = {"PIPX_HOME": f"{folder}/pipx", "PIPX_BIN_DIR": f"{folder}/bin"}
            # Compiled modules differ at each installation.
            only_wheels = "--pip-args=--only-binary=:all: --no-compile"
            return ("pipx", "install", "--quiet", only_wheels, packages[0]), folders


def compile_command(command: PackageCommand, folder: str) -> tuple[str, ...]:
    """The command that compiles the Python modules of an installed package; empty if there is none, or no Python for it. Blocks.

    The package is read-only when it runs, so Python could not keep what it compiles, and would compile every module at every start. The
    command runs no code of the package: the interpreter is outside of the folder, and reads neither settings nor `.pth` files in it.
    """
    if command.runner not in (Runner.UVX, Runner.PIPX):
        return ()
    environments = "tools/*" if command.runner is Runner.UVX else "pipx/venvs/*"
    for link in sorted(Path(folder).glob(f"{environments}/bin/python")):
        with suppress(OSError):
            python = real_path(str(link))
            if _PYTHON.fullmatch(Path(python).name) and not is_within(python, real_path(folder)):
                # Modules for other versions of Python cannot be compiled: `-q -q` leaves out these errors.
                options = ("-I", "-S", "-m", "compileall", "-q", "-q")
                return (python, *options, str(link.parents[1] / "lib"))
    return ()


async def wait_for_installation(child: Child, folder: Path, *, package: str) -> tuple[int, str]:
    """Wait until the command that installs or compiles a package has ended. Return its exit code and last output.

    If the command takes too long, or the package gets too large, end the command and raise.
    """
    reading = asyncio.gather(_read_all(child.stdout.fileno()), _read_all(child.stderr.fileno()))
    waiting = asyncio.ensure_future(child.wait())
    deadline = time.monotonic() + FETCH_SECONDS
    try:
        while not waiting.done():
            await asyncio.wait([waiting], timeout=_CHECK_SECONDS)
            if waiting.done():
                break
            too_large = await _THREADS.run(is_too_large, folder)
            if too_large or time.monotonic() > deadline:
                child.terminate_quickly()
                raise _too_large(package) if too_large else _too_slow(package)
        if await _THREADS.run(is_too_large, folder):
            raise _too_large(package)
        output, errors = await asyncio.wait_for(reading, _OUTPUT_SECONDS)
        return waiting.result(), strip_invisible((errors or output).decode(errors="replace"))
    finally:
        reading.cancel()
        waiting.cancel()
        with suppress(asyncio.CancelledError, HoldfastError, OSError, TimeoutError):
            await reading


def _too_large(package: str) -> HoldfastError:
    return HoldfastError(
        codes.SPAWN_FAILED,
        f"{package} cannot be used: it is larger than {MAX_BYTES} bytes, has too many files, or folders that are nested too deeply."
        " Install it yourself, and write the path of its program as the server's command.",
    )


def _too_slow(package: str) -> HoldfastError:
    return HoldfastError(
        codes.SPAWN_FAILED,
        f"{package} cannot be used: fetching or compiling it took more than {FETCH_SECONDS:g} seconds. Try again later.",
    )


async def _read_all(descriptor: int) -> bytes:
    """Read a pipe to its end; keep the last bytes."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    kept = b""
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, partial(_set_ready, ready))
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
        data = os.read(descriptor, 64 * 1024)
        if not data:
            return kept
        kept = (kept + data)[-_KEPT_BYTES:]


def _set_ready(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
