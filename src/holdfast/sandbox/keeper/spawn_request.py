"""A request to the keeper to start a process, and the error if the process cannot be started."""

import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec

_MAX_NAMED_FOLDERS = 5
_EXEC_REASONS = {
    errno.ENOENT: "there is no such program. Install it, or correct the server's command.",
    errno.EACCES: "it may not be executed. Check its permissions, or correct the server's command.",
    errno.EPERM: "it may not be executed. Check its permissions, or correct the server's command.",
    errno.ENOEXEC: "it is neither a program nor a script with a `#!` line. Correct the server's command.",
    errno.E2BIG: "its arguments and environment are too long. Shorten them.",
}
_RESOURCE_REASONS = {
    errno.EMFILE: "too many files are open. Close some sessions, or raise the limit (ulimit -n).",
    errno.ENFILE: "too many files are open on this machine. Close some programs.",
    errno.EAGAIN: "too many processes are running. End some, or raise the limit (ulimit -u).",
    errno.ENOMEM: "there is too little memory. End some programs.",
}
_PIPES_REASONS = {
    errno.ENOSPC: "the programs of this user watch too many files. End some of them, or raise the limit (sysctl"
    " fs.epoll.max_user_watches).",
    errno.ETOOMANYREFS: "the programs of this user are passing too many file descriptors to each other. End some of them,"
    " or raise Holdfast's own limit (ulimit -n).",
}
"""A confined server of the same user may be the cause."""
_STEP_REASONS = {
    "pipes": "its pipes cannot be created: {text}.",
    "keeper": "{text}. Check the system log for the cause, then try again.",
    "descriptors": "its file descriptors cannot be set up: {text}.",
    "cgroup": "it cannot join its control group: {text}. Check the permissions of Holdfast's user.",
    "user": "it cannot switch to its user: {text}. Check the permissions of Holdfast's user.",
    "chdir": "it cannot change to its working directory {cwd!r}: {text}. Use another directory.",
    "exec": "{text}. Check the command and its permissions.",
}
"""By the step at which a start failed: `pipes` and `keeper` in the host, the others in `keeper_process.py`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """A control group to create for one server, below `parent` (a folder)."""

    parent: str
    limits: Mapping[str, str]
    outer: tuple[tuple[str, Mapping[str, str]], ...] = ()
    """The names and limits of the groups between `parent` and the server's own, outermost first. Servers share them: they are
    created if they are missing, and removed once they are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """What to execute for a server: its own command, or a sandbox around it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str
    cwd_fd: int | None = None
    """An open descriptor of the folder to start in; None to open `cwd`."""
    descriptors: tuple[int, ...] = ()
    """The process gets them as 3, 4, 5 … It inherits no other descriptors."""
    run_as: tuple[int, int] | None = None
    """The uid and gid to switch to; None to keep the host's."""
    cgroups: tuple[Cgroup, ...] = ()
    has_monitor: bool = False
    """Whether the started process is only a monitor of the server (bubblewrap). A monitor gets no SIGTERM: if it ends, it
    kills the server at once."""
    prefer_oom_kill: bool = False
    """Make this process the OOM killer's first choice."""
    cleanup: tuple[str, ...] = ()
    """A command to run after the last process has ended."""


def direct_request(spec: ProcessSpec) -> SpawnRequest:
    """The request for an unconfined server: its command, unchanged."""
    return SpawnRequest(argv=spec.argv, env=spec.env, cwd=spec.cwd, cwd_fd=spec.cwd_fd)


def spawn_error(request: SpawnRequest, step: str, number: int | None, text: str) -> HoldfastError:
    """The error for a start that failed at `step`, a key of `_STEP_REASONS`, with the `errno` and the text of the exception."""
    name = request.argv[0] if request.argv else ""
    if not name and step == "exec":
        reason = _EXEC_REASONS[errno.ENOENT]
    elif "null" in text and number is None:  # ValueError: embedded null byte
        reason = "there is a NUL character in its command, working directory or environment. Remove it."
    elif step == "exec" and number == errno.ENOENT and _exists(request):
        reason = "the interpreter in its `#!` line is missing. Install it, or correct the line."
    elif step == "exec" and number == errno.EACCES and not _exists(request):
        reason = f"{_EXEC_REASONS[errno.ENOENT]}{_unsearched_folders(request)}"
    elif step == "exec" and number in _EXEC_REASONS:
        reason = _EXEC_REASONS[number]
    elif step == "pipes" and number in _PIPES_REASONS:
        reason = _PIPES_REASONS[number]
    elif number in _RESOURCE_REASONS:
        reason = _RESOURCE_REASONS[number]
    else:
        why = os.strerror(number).lower() if step == "chdir" and number is not None else text
        reason = _STEP_REASONS[step].format(text=why, cwd=request.cwd)
    return HoldfastError(codes.SPAWN_FAILED, f"Could not start {name!r}: {reason}", command=name)


def _exists(request: SpawnRequest) -> bool:
    name = request.argv[0]
    if "/" in name:
        return os.path.exists(os.path.join(request.cwd, name))  # noqa: PTH110, PTH118 - names, not paths yet
    return shutil.which(name, path=request.env.get("PATH", os.defpath)) is not None


def _unsearched_folders(request: SpawnRequest) -> str:
    """Which folders of the PATH could not be searched. `execvp` then reports EACCES, as if the program could not be executed."""
    folders = request.env.get("PATH", os.defpath).split(os.pathsep)
    unsearched = [folder for folder in folders if folder and _is_unsearchable(folder)][:_MAX_NAMED_FOLDERS]
    named = ", ".join(map(repr, unsearched))
    return f" These folders of the PATH could not be searched: {named}." if unsearched else ""


def _is_unsearchable(folder: str) -> bool:
    try:
        os.stat(os.path.join(folder, "."))  # noqa: PTH116, PTH118
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(folder, os.X_OK)
