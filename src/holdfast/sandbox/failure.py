"""Why a program could not be started, in a sentence that says what to do."""

import errno
import os
import shutil

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.sandbox.program import Program

_REASONS = {
    errno.ENOENT: "there is no such program. Install it, or correct the server's command.",
    errno.EACCES: "it may not be executed. Check its permissions, or correct the server's command.",
    errno.EPERM: "it may not be executed. Check its permissions, or correct the server's command.",
    errno.ENOEXEC: "it is neither a program nor a script whose first line names one. Correct the server's command.",
    errno.E2BIG: "its arguments and environment are too long. Shorten them.",
    errno.EMFILE: "too many files are open. Close some sessions, or raise the limit (ulimit -n).",
    errno.ENFILE: "too many files are open on this machine. Close some programs.",
    errno.EAGAIN: "too many processes are running. End some, or raise the limit (ulimit -u).",
    errno.ENOMEM: "there is too little memory. End some programs.",
}


def could_not_start(program: Program, stage: str, number: int | None, words: str) -> HoldfastError:
    """The error for a start that failed at this stage, with this error number of the system's."""
    name = program.argv[0] if program.argv else ""
    if stage == "folder":
        why = os.strerror(number).lower() if number is not None else words
        reason = f"its working folder {program.cwd!r} cannot be entered: {why}. Name a folder that can."
    elif not name:
        reason = _REASONS[errno.ENOENT]
    elif "null" in words and number is None:
        reason = "there is a NUL character in its command, folder or environment. Remove it."
    elif stage == "program" and number == errno.ENOENT and _exists(program):
        reason = "the interpreter that its first line names is missing. Install that, or correct the line."
    elif number in _REASONS and stage in ("program", "process"):
        reason = _REASONS[number]
    else:
        reason = f"{words} (at {stage}). Check the command and its permissions."
    return HoldfastError(codes.SPAWN_FAILED, f"Could not start {name!r}: {reason}", command=name)


def _exists(program: Program) -> bool:
    name = program.argv[0]
    if "/" in name:
        return os.path.exists(os.path.join(program.cwd, name))  # noqa: PTH110, PTH118 - names, not paths yet
    return shutil.which(name, path=program.env.get("PATH", os.defpath)) is not None
