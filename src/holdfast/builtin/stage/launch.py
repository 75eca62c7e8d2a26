"""Starts Chromium in a sandbox, with a proxy that checks every request. Ends the browser, and removes its files."""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from io import FileIO
from typing import cast

from holdfast.builtin.stage.browser_folder import BrowserFolder
from holdfast.builtin.stage.browser_sandbox import (
    SandboxKind,
    browser_confinement,
    can_user_nobody_read_own_code,
    choose_sandbox,
    network_confinement,
)
from holdfast.builtin.stage.cdp import protocol
from holdfast.builtin.stage.cdp.connection import CdpError, Connection, ConnectionLostError, NoAnswerError
from holdfast.builtin.stage.cdp.pipe import PipeTransport
from holdfast.builtin.stage.chromium_flags import CONFINED_FLAGS, FLAGS, PREFERENCES
from holdfast.builtin.stage.codes import LAUNCH_FAILED, NO_BROWSER
from holdfast.builtin.stage.find_browser import find_browser
from holdfast.builtin.stage.launch_options import LaunchOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.loop_pipes import connect_read_pipe
from holdfast.model.process import ProcessSpec
from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.bwrap.arguments import PROXY_PORT
from holdfast.sandbox.bwrap.egress_proxy import EgressProxy
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.client import KeeperClient
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.toolkit import ToolError

_START_SECONDS = 30.0
# A browser ends within a second. It is asked to close, and has `_ASK_SECONDS` to answer. Then it has `_GRACE_SECONDS` until SIGTERM,
# and as long again until SIGKILL.
_ASK_SECONDS = 0.3
_GRACE_SECONDS = 0.2
_STDERR_BYTES = 4000
_PROGRAMS = "programs"  # the subfolder of the browser's folder that is first in its PATH
_THREADS = WorkerThreads("stage-folders", threads=2)
# The shell waits for a line, then becomes the browser, whose ends of the DevTools pipes must be the descriptors 3 and 4.
_SCRIPT = 'read -r start && exec "$0" "$@" 3<&0 4>&1 </dev/null >&2'


class BrowserProcess:
    """A Chromium process. Until `start`, it is a shell that waits. `close` ends all of its processes and removes its folder."""

    def __init__(self, folder: BrowserFolder, program: str) -> None:
        self.connection = Connection()
        self.folder = folder.path
        self._program = program
        self._stack = AsyncExitStack()
        self._errors = _LastLines()
        self._transport: PipeTransport | None = None
        self._is_started = False

    async def connect(self, child: Child, stack: AsyncExitStack) -> None:
        """Connect to the pipes of the shell that waits. From now on, `close` closes everything in `stack`."""
        stack.push_async_callback(child.end, _GRACE_SECONDS)
        stack.callback(self.connection.close)
        errors, _ = await connect_read_pipe(lambda: self._errors, child.stderr)
        stack.callback(errors.close)
        pipes = cast("FileIO", child.stdout), cast("FileIO", child.stdin)
        self._transport = await PipeTransport.open(self.connection, *pipes)
        self._stack = stack.pop_all()

    async def start(self) -> None:
        """Start the browser if it is not started yet, and wait until it answers; raises LAUNCH_FAILED."""
        assert self._transport is not None
        if not self._is_started:
            self._is_started = True
            self._transport.write(b"\n")
            self._stack.push_async_callback(_ask_to_close, self.connection)
        try:
            await self.connection.send(protocol.BrowserGetVersion(), timeout=_START_SECONDS)
        except (NoAnswerError, ConnectionLostError, CdpError) as error:
            why, command = self._errors.text() or error, shlex.join([self._program, "--version"])
            raise ToolError(LAUNCH_FAILED, f"The browser did not start: {why}. Run: {command}") from None

    async def close(self) -> None:
        """End the browser within a second: if it does not end by itself, it is killed."""
        await self._stack.aclose()


async def launch(options: LaunchOptions, starter: KeeperClient | None = None) -> BrowserProcess:
    """Start a browser and wait until it answers; raises NO_BROWSER or LAUNCH_FAILED."""
    process = await prepare(options, starter)
    try:
        await process.start()
    except BaseException:
        await process.close()
        raise
    return process


async def prepare(options: LaunchOptions, starter: KeeperClient | None = None) -> BrowserProcess:
    """Set up all that a browser needs, and start a shell in its sandbox. `BrowserProcess.start` makes the shell become the browser.

    `starter` is the client of the keeper process that starts the shell, and is closed with the browser. Without it, a new keeper
    process is started. Raises NO_BROWSER or LAUNCH_FAILED.
    """
    program = find_browser(options.program)
    if program is None:
        if not options.program:
            raise ToolError(NO_BROWSER, "No Chromium or Chrome is installed.")
        raise ToolError(
            NO_BROWSER,
            f"The setting stage.browser is {options.program!r}, which is not a program.",
            hint="Correct the setting, or remove it to use an installed Chromium.",
        )
    async with AsyncExitStack() as stack:
        try:
            sandbox_kind, sandbox = await choose_sandbox(options)
            folder = await _THREADS.run(BrowserFolder, options.folder_base)
            stack.push_async_callback(_THREADS.run, folder.remove)
            _write_preferences(folder)
            _replace_programs(folder)
            keeper = await stack.enter_async_context(Keeper(sandbox, starter=starter))
            proxy = await _open_proxy(options, sandbox_kind, stack)
            if sandbox_kind == "holdfast" and os.geteuid() == 0 and can_user_nobody_read_own_code():
                folder.give_to_nobody()
            process = BrowserProcess(folder, program)
            child = await keeper.spawn(_process_spec(program, folder, options, sandbox_kind, proxy))
            await process.connect(child, stack)
        except OSError as error:
            raise ToolError(
                LAUNCH_FAILED, f"The browser could not be started: {str(error).rstrip('.')}."
            ) from None
        except HoldfastError as error:
            if isinstance(error, ToolError):
                raise
            raise ToolError(LAUNCH_FAILED, f"The browser could not be started. {error.message}") from None
        return process


async def _ask_to_close(connection: Connection) -> None:
    with contextlib.suppress(CdpError, ConnectionLostError, NoAnswerError):
        await connection.send(protocol.BrowserClose(), timeout=_ASK_SECONDS)


def _write_preferences(folder: BrowserFolder) -> None:
    profile = folder.path / "profile" / "Default"
    profile.mkdir()
    (profile / "Preferences").write_text(json.dumps(PREFERENCES))


def _replace_programs(folder: BrowserFolder) -> None:
    """Keep the browser from opening other programs, which it does for `mailto:` without asking. It finds `false` in place of `xdg-open`."""
    programs = folder.path / _PROGRAMS
    programs.mkdir()
    nothing = shutil.which("false", path=os.defpath) or os.devnull
    for name in ("xdg-email", "xdg-open"):
        (programs / name).symlink_to(nothing)


def _process_spec(
    program: str, folder: BrowserFolder, options: LaunchOptions, sandbox_kind: SandboxKind, proxy: str
) -> ProcessSpec:
    own = (f"--user-data-dir={folder.path}/profile", f"--proxy-server={proxy}")
    flags = (*FLAGS, *own, *(CONFINED_FLAGS if sandbox_kind == "holdfast" else ()))
    env = {
        "HOME": str(folder.path / "profile"),
        # Chromium creates a Unix socket in this folder, and the path of a Unix socket must be short. Each sandbox has its own /tmp.
        "TMPDIR": "/tmp" if sandbox_kind == "holdfast" else str(folder.path),
        "PATH": f"{folder.path}/{_PROGRAMS}:{os.defpath}",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        **({"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}),
    }
    return ProcessSpec(
        argv=("/bin/sh", "-c", _SCRIPT, program, *flags),
        env=env,
        cwd=str(folder.path),
        confinement=browser_confinement(program, folder, options) if sandbox_kind == "holdfast" else None,
    )


async def _open_proxy(options: LaunchOptions, sandbox_kind: SandboxKind, stack: AsyncExitStack) -> str:
    """Return the address of the proxy that checks every request. Start it, unless the sandbox comes with one."""
    match sandbox_kind:
        case "holdfast":
            return f"http://127.0.0.1:{PROXY_PORT}"
        case "chromium":
            proxy = EgressProxy(network_confinement(options))
            listener = socket.create_server(("127.0.0.1", 0))
            await proxy.serve(listener)
            stack.callback(proxy.close)
            return f"http://127.0.0.1:{listener.getsockname()[1]}"


class _LastLines(asyncio.Protocol):
    """Keeps the end of what the browser writes to standard error, for the message if it does not start."""

    def __init__(self) -> None:
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data = (self._data + data)[-_STDERR_BYTES:]

    def text(self) -> str:
        lines: Sequence[str] = self._data.decode(errors="replace").split("\n")
        text = " ".join(line.strip() for line in lines[-6:] if line.strip())
        return "".join(c if c.isprintable() else " " for c in text)[:500].rstrip(".")
