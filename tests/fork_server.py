"""A process that has imported the commands of `holdfast`, and forks a child for each command.

Each command still runs in a process of its own, with its own arguments, folder, variables and standard streams; only
the imports are done once, and none of the imported objects is freed at the end. `tests.commands` starts this script and sends it the requests.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import termios
import threading
from pathlib import Path
from typing import NoReturn, TypedDict

PACKAGES = (
    "acp",
    "agent",
    "audit",
    "builtin",
    "cli",
    "connect",
    "gateway",
    "host",
    "masking",
    "resolve",
    "sandbox",
    "session",
    "settings",
    "store",
    "token",
    "toolkit",
    "wire",
    "workspaces",
)
LIBRARIES = (
    "httptools",
    "importlib.readers",
    "jsonschema_rs",
    "platformdirs.unix",
    "prompt_toolkit.shortcuts",
    "rich.console",
    "rich.table",
    "tomllib",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)
TESTED = str(Path(__file__).resolve().parent.parent)
NOT_IMPORTED = ("holdfast.agent.model", "holdfast.builtin.stage")
"""They import large libraries, which few commands use."""


class Request(TypedDict):
    """A command to run. Its standard streams are sent with it, as descriptors."""

    words: list[str]
    """The words after `holdfast`; or `-m`, a module and its arguments, as after `python`."""
    cwd: str
    environ: dict[str, str]
    is_in_terminal: bool
    """Whether its standard input becomes its controlling terminal."""


def import_packages() -> None:
    """Import all modules of the packages."""
    for package in PACKAGES:
        folder = importlib.import_module(f"holdfast.{package}").__path__
        for found in pkgutil.walk_packages(folder, f"holdfast.{package}."):
            if not found.name.startswith(NOT_IMPORTED) and not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    for library in LIBRARIES:
        importlib.import_module(library)


def serve(control: socket.socket) -> Request | None:
    """Answer requests until the other end is closed. Return the request in a child that shall run it."""
    running: dict[int, socket.socket] = {}
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker.fileno())
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _report_ended(running)
        if control in ready:
            _, received, _, _ = socket.recv_fds(control, 1, 1)
            if not received:
                return None
            connection = socket.socket(fileno=received[0])
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            with connection.makefile("rb") as lines:
                line = lines.readline()
            child = os.fork() if line else None
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for ours in (control, woken, waker, connection, *running.values()):
                    ours.close()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                os.closerange(3, 64)
                return json.loads(line)
            for stream in streams:
                os.close(stream)
            if child is None:  # the test ended before it sent its request
                connection.close()
                continue
            running[child] = connection
            with contextlib.suppress(BrokenPipeError):
                connection.send(f"{child}\n".encode())


def _report_ended(running: dict[int, socket.socket]) -> None:
    """Send the exit status of each child that has ended."""
    while running:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        with running.pop(child) as connection, contextlib.suppress(BrokenPipeError):
            connection.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def run(request: Request) -> NoReturn:
    """Run the command in this process."""
    if request["is_in_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    words = request["words"]
    sys.argv = words[1:] if words[:1] == ["-m"] else ["holdfast", *words]
    sys.stdin, sys.stdout, sys.stderr = _open("r", 0), _open("w", 1), _open("w", 2)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    if words[:1] == ["-m"]:
        sys.path[:0] = [request["cwd"], TESTED]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        sys.exit()
    from holdfast.cli import main

    sys.exit(main())


def end(ended: SystemExit) -> NoReturn:
    """End this process as Python does, but without freeing each of the imported objects: that takes longer than most commands."""
    if ended.code is not None and not isinstance(ended.code, int):
        raise ended
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((ended.code or 0) & 0xFF)


def _open(mode: str, number: int) -> io.TextIOWrapper:
    """A standard stream as Python opens it."""
    is_line_buffered = number == 2 or os.isatty(number)
    raw = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - a descriptor, open until the process ends
    return io.TextIOWrapper(
        raw, "utf-8", "backslashreplace" if number == 2 else "strict", line_buffering=is_line_buffered
    )


if __name__ == "__main__":
    del sys.path[0]  # this folder
    import_packages()
    gc.collect()
    gc.freeze()
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        try:
            run(wanted)
        except SystemExit as ended:
            end(ended)
